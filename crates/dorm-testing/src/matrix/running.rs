//! Running.

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::json;

use super::Stage;
use super::volume::{DATA, PLACE};

pub(super) async fn memory_is_its_own(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    let (other, mut its) = stage.begin().await?;
    for _ in 0..3 {
        witness.counts(stage.daemon(), &id).await?;
    }
    its.counts(stage.daemon(), &other).await?;
    witness.counts(stage.daemon(), &id).await
}

pub(super) async fn files_are_its_own(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    let other = stage.create(stage.small()).await?;
    stage.has_no_note(&other).await?;
    stage.note(&other, "another").await?;
    stage.has_note(&id, "first").await?;
    stage.has_note(&other, "another").await
}

pub(super) async fn processes_outlive_the_call_that_started_them(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    ensure!(stage.processes(&id).await? == [witness.process], "it is not listed");
    witness.counts(stage.daemon(), &id).await?;
    let path = format!("/sandboxes/{id}/processes/{}", witness.process);
    let closed = stage.daemon().request(Method::POST, &format!("{path}/stdin/close")).send().await?;
    ensure!(closed.status().is_success(), "its input is not closed: {}", closed.text().await?);
    stage.daemon().get(&format!("{path}/wait")).await?;
    ensure!(stage.processes(&id).await?.is_empty(), "it is listed as if it ran");
    let ended = stage.daemon().get(&path).await?;
    ensure!(!ended["exit"].is_null(), "it has not ended: {ended}");
    Ok(())
}

pub(super) async fn one_that_runs_counts_with_its_limit(stage: &dyn Stage) -> Result<()> {
    stage.create(stage.large()).await?;
    stage.has_no_room("/sandboxes", stage.small()).await
}

pub(super) async fn volumes_come_and_go_and_are_seen_from_outside(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let (id, mut witness) = stage.begin().await?;
    let path = format!("/sandboxes/{id}/volumes");
    stage.daemon().post(&path, json!({ "volume": DATA, "path": PLACE })).await?;
    stage.sees(&id, "note", "first").await?;
    stage.puts(&id, "inside", "from inside").await?;
    stage.volume_has(DATA, "inside", "from inside").await?;
    stage.put(DATA, "outside", "from outside").await?;
    stage.sees(&id, "outside", "from outside").await?;
    stage.daemon().ask(Method::DELETE, &format!("{path}?path={PLACE}"), None).await?;
    stage.sees_nothing(&id).await?;
    stage.volume_has(DATA, "inside", "from inside").await?;
    stage.another_writes().await?;
    witness.counts(stage.daemon(), &id).await
}
