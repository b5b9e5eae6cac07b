//! Resuming.

use anyhow::{Result, ensure};
use serde_json::json;

use super::Stage;
use super::volume::DATA;

pub(super) async fn memory_continues(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    stage.act(&id, "suspend").await?;
    stage.act(&id, "resume").await?;
    witness.counts(stage.daemon(), &id).await?;
    stage.sleep(&id).await?;
    stage.act(&id, "resume").await?;
    witness.counts(stage.daemon(), &id).await
}

pub(super) async fn files_are_as_they_were(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    stage.sleep(&id).await?;
    stage.act(&id, "resume").await?;
    stage.has_note(&id, "first").await?;
    stage.note(&id, "second").await?;
    stage.has_note(&id, "second").await
}

pub(super) async fn the_same_processes_continue(stage: &dyn Stage) -> Result<()> {
    let (id, witness) = stage.begin().await?;
    let before = stage.is(&id, "running").await?["generation"].as_u64();
    stage.sleep(&id).await?;
    stage.act(&id, "resume").await?;
    let after = stage.is(&id, "running").await?["generation"].as_u64();
    ensure!(after > before, "its generation is {after:?} after {before:?}");
    ensure!(stage.processes(&id).await? == [witness.process], "they are not the same");
    Ok(())
}

pub(super) async fn it_needs_room_again(stage: &dyn Stage) -> Result<()> {
    let id = stage.create(stage.large()).await?;
    stage.act(&id, "suspend").await?;
    let other = stage.create(stage.small()).await?;
    stage.has_no_room(&format!("/sandboxes/{id}/resume"), json!({})).await?;
    stage.is(&id, "suspended").await?;
    stage.act(&other, "terminate").await?;
    stage.act(&id, "resume").await?;
    stage.is(&id, "running").await.map(drop)
}

pub(super) async fn it_needs_its_volume_again_and_finds_what_others_have_written(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let id = stage.create(stage.writer()).await?;
    for verbs in [&["suspend"][..], &["suspend", "evict"]] {
        for verb in verbs {
            stage.act(&id, verb).await?;
        }
        let other = stage.create(stage.writer()).await?;
        stage.puts(&other, "other", &other).await?;
        stage.is_taken(&format!("/sandboxes/{id}/resume"), json!({}), &other).await?;
        stage.is(&id, "suspended").await?;
        stage.act(&other, "terminate").await?;
        stage.act(&id, "resume").await?;
        stage.sees(&id, "other", &other).await?;
        stage.puts(&id, "note", &other).await?;
        stage.volume_has(DATA, "note", &other).await?;
    }
    stage.is_taken("/sandboxes", stage.writer(), &id).await
}
