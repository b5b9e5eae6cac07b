//! Suspended.

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::json;

use super::Stage;
use super::volume::{DATA, PLACE};

pub(super) async fn memory_can_be_copied_without_waking_it(stage: &dyn Stage) -> Result<()> {
    let (id, witness) = stage.begin().await?;
    stage.sleep(&id).await?;
    let snapshot = stage.snapshot(&id, "memory").await?;
    let view = stage.is(&id, "suspended").await?;
    ensure!(view["residence"] == "evicted", "it is {}", view["residence"]);
    let child = stage.from(&snapshot).await?;
    witness.clone().counts(stage.daemon(), &child).await?;
    stage.act(&id, "resume").await?;
    witness.clone().counts(stage.daemon(), &id).await
}

pub(super) async fn files_can_be_copied_without_waking_it(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    stage.sleep(&id).await?;
    let snapshot = stage.snapshot(&id, "filesystem").await?;
    let view = stage.is(&id, "suspended").await?;
    ensure!(view["residence"] == "evicted", "it is {}", view["residence"]);
    stage.has_note(&stage.from(&snapshot).await?, "first").await
}

pub(super) async fn nothing_of_it_runs(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    stage.act(&id, "suspend").await?;
    let asked = Some(json!({ "argv": ["true"] }));
    let answer = stage.daemon().try_ask(Method::POST, &format!("/sandboxes/{id}/exec"), asked).await?;
    let message = answer.body["detail"].as_str().unwrap_or_default();
    ensure!(answer.status == 409 && message.contains("is suspended"), "{answer:?}");
    stage.is(&id, "suspended").await.map(drop)
}

pub(super) async fn it_counts_on_disk_alone(stage: &dyn Stage) -> Result<()> {
    stage.has_saved_states(0).await?;
    for _ in 0..2 {
        let id = stage.create(stage.large()).await?;
        stage.act(&id, "suspend").await?;
    }
    stage.has_all_room().await?;
    stage.has_saved_states(2).await
}

pub(super) async fn it_keeps_its_wish_and_nothing_else(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    stage.volume("more").await?;
    let id = stage.create(stage.writer()).await?;
    stage.sleep(&id).await?;
    stage.is_refused(Method::DELETE, &format!("/volumes/{DATA}"), None, "(suspended)").await?;
    stage.another_writes().await?;
    let path = format!("/sandboxes/{id}/volumes");
    stage.daemon().ask(Method::DELETE, &format!("{path}?path={PLACE}"), None).await?;
    stage.daemon().ask(Method::DELETE, &format!("/volumes/{DATA}"), None).await?;
    stage.put("more", "note", "another").await?;
    stage.daemon().post(&path, json!({ "volume": "more", "path": PLACE })).await?;
    stage.is(&id, "suspended").await?;
    stage.act(&id, "resume").await?;
    stage.sees(&id, "note", "another").await
}
