//! Snapshots.

use anyhow::{Result, ensure};
use reqwest::Method;

use super::Stage;
use super::volume::DATA;

pub(super) async fn memory_is_that_of_one_moment(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    let then = witness.clone();
    let generation = stage.is(&id, "running").await?["generation"].clone();
    let snapshot = stage.snapshot(&id, "memory").await?;
    witness.counts(stage.daemon(), &id).await?;
    ensure!(stage.is(&id, "running").await?["generation"] == generation, "its run is another one");
    for _ in 0..2 {
        let child = stage.from(&snapshot).await?;
        then.clone().counts(stage.daemon(), &child).await?;
    }
    Ok(())
}

pub(super) async fn files_are_those_of_one_moment(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    let snapshot = stage.snapshot(&id, "filesystem").await?;
    stage.note(&id, "later").await?;
    stage.has_note(&stage.from(&snapshot).await?, "first").await?;
    stage.has_note(&id, "later").await
}

pub(super) async fn the_source_runs_on(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    for kind in ["memory", "filesystem"] {
        stage.snapshot(&id, kind).await?;
        ensure!(stage.processes(&id).await? == [witness.process], "{kind}: they are not the same");
        witness.counts(stage.daemon(), &id).await?;
    }
    let files = stage.snapshot(&id, "filesystem").await?;
    let running = stage.processes(&stage.from(&files).await?).await?;
    ensure!(running.is_empty(), "from files run {running:?}");
    Ok(())
}

pub(super) async fn it_takes_disk_alone(stage: &dyn Stage) -> Result<()> {
    let id = stage.create(stage.large()).await?;
    stage.has_no_room("/sandboxes", stage.small()).await?;
    for kind in ["memory", "filesystem"] {
        let snapshot = stage.snapshot(&id, kind).await?;
        stage.has_saved_states(1).await?;
        stage.daemon().ask(Method::DELETE, &format!("/snapshots/{snapshot}"), None).await?;
        stage.has_saved_states(0).await?;
    }
    Ok(())
}

pub(super) async fn nothing_of_a_volume_is_in_it(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let id = stage.create(stage.writer()).await?;
    stage.puts(&id, "secret", "only on the volume").await?;
    for kind in ["memory", "filesystem"] {
        let snapshot = stage.snapshot(&id, kind).await?;
        let child = stage.from(&snapshot).await?;
        stage.sees_nothing(&child).await?;
        stage.puts(&id, "after", kind).await?;
        stage.volume_has(DATA, "after", kind).await?;
        stage.act(&child, "terminate").await?;
    }
    stage.volume_has(DATA, "secret", "only on the volume").await
}
