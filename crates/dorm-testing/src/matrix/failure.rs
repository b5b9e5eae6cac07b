//! Unexpected ends of runs.

use anyhow::{Result, ensure};

use super::Stage;
use super::volume::DATA;

pub(super) async fn memory_is_that_of_its_last_image(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    stage.act(&id, "suspend").await?;
    let then = witness.clone();
    stage.act(&id, "resume").await?;
    witness.counts(stage.daemon(), &id).await?;
    stage.crash(&id)?;
    stage.becomes(&id, "suspended").await?;
    stage.act(&id, "resume").await?;
    then.clone().counts(stage.daemon(), &id).await
}

pub(super) async fn files_are_those_of_its_last_image(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    stage.act(&id, "suspend").await?;
    stage.act(&id, "resume").await?;
    stage.note(&id, "later").await?;
    stage.crash(&id)?;
    stage.becomes(&id, "suspended").await?;
    stage.act(&id, "resume").await?;
    stage.has_note(&id, "first").await?;
    let events = stage.daemon().get(&format!("/events?sandbox={id}&limit=100")).await?.to_string();
    ensure!(events.contains("run_lost"), "{events}");
    Ok(())
}

pub(super) async fn without_an_image_it_is_over_with_its_cause(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    stage.crash(&id)?;
    let over = stage.becomes(&id, "terminated").await?;
    ensure!(over["cause"]["kind"] == "failed", "it is over for {}", over["cause"]);
    ensure!(over["cause"].to_string().contains("no sleep image"), "it says {}", over["cause"]);
    Ok(())
}

pub(super) async fn its_room_is_free_again_when_its_run_dies(stage: &dyn Stage) -> Result<()> {
    let id = stage.create(stage.large()).await?;
    stage.has_no_room("/sandboxes", stage.small()).await?;
    stage.crash(&id)?;
    stage.becomes(&id, "terminated").await?;
    stage.has_all_room().await?;
    let id = stage.create(stage.large()).await?;
    stage.act(&id, "suspend").await?;
    stage.act(&id, "resume").await?;
    stage.crash(&id)?;
    stage.becomes(&id, "suspended").await?;
    stage.has_all_room().await
}

pub(super) async fn its_volume_is_free_again_when_its_run_dies(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let id = stage.create(stage.writer()).await?;
    stage.puts(&id, "note", &id).await?;
    stage.crash(&id)?;
    stage.becomes(&id, "terminated").await?;
    stage.volume_has(DATA, "note", &id).await?;
    stage.another_writes().await?;
    let id = stage.create(stage.writer()).await?;
    stage.act(&id, "suspend").await?;
    stage.act(&id, "resume").await?;
    // Data written since the image stays, as on any other disk that outlives a crash.
    stage.puts(&id, "note", &id).await?;
    stage.crash(&id)?;
    stage.becomes(&id, "suspended").await?;
    stage.another_writes().await?;
    stage.act(&id, "resume").await?;
    stage.sees(&id, "note", &id).await
}
