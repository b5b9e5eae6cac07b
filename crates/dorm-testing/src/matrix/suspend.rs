//! Suspending.

use anyhow::{Result, ensure};

use super::Stage;
use super::volume::DATA;

pub(super) async fn memory_is_on_disk_when_it_is_answered(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    let answered = stage.act(&id, "suspend").await?;
    ensure!(answered["state"] == "suspended", "it answers that it is {}", answered["state"]);
    stage.has_saved_states(1).await?;
    let evicted = stage.act(&id, "evict").await?;
    ensure!(evicted["residence"] == "evicted", "it is {}", evicted["residence"]);
    stage.act(&id, "resume").await?;
    witness.counts(stage.daemon(), &id).await
}

pub(super) async fn files_are_in_its_image(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    stage.note(&id, "last").await?;
    stage.sleep(&id).await?;
    stage.act(&id, "resume").await?;
    stage.has_note(&id, "last").await
}

pub(super) async fn no_process_is_lost(stage: &dyn Stage) -> Result<()> {
    let (id, mut first) = stage.begin().await?;
    let mut second = stage.witness(&id).await?;
    stage.sleep(&id).await?;
    stage.act(&id, "resume").await?;
    ensure!(stage.processes(&id).await? == [first.process, second.process], "they are not the same");
    first.counts(stage.daemon(), &id).await?;
    second.counts(stage.daemon(), &id).await
}

pub(super) async fn its_memory_is_given_back(stage: &dyn Stage) -> Result<()> {
    let id = stage.create(stage.large()).await?;
    stage.has_no_room("/sandboxes", stage.large()).await?;
    stage.act(&id, "suspend").await?;
    stage.has_all_room().await
}

pub(super) async fn its_volume_is_free_when_it_is_answered(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let id = stage.create(stage.writer()).await?;
    stage.puts(&id, "last", "written last").await?;
    stage.is_taken("/sandboxes", stage.writer(), &id).await?;
    stage.act(&id, "suspend").await?;
    stage.another_writes().await?;
    stage.volume_has(DATA, "last", "written last").await
}
