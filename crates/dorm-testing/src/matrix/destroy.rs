//! Terminating.

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::json;

use super::Stage;
use super::volume::DATA;

pub(super) async fn no_memory_is_left(stage: &dyn Stage) -> Result<()> {
    for verbs in [&["terminate"][..], &["suspend", "terminate"], &["suspend", "evict", "terminate"]] {
        let (id, _) = stage.begin().await?;
        for verb in verbs {
            stage.act(&id, verb).await?;
        }
        stage.is(&id, "terminated").await?;
        stage.has_saved_states(0).await?;
    }
    Ok(())
}

pub(super) async fn its_files_go_and_its_snapshots_stay(stage: &dyn Stage) -> Result<()> {
    let (id, witness) = stage.begin().await?;
    let (memory, files) = (stage.snapshot(&id, "memory").await?, stage.snapshot(&id, "filesystem").await?);
    stage.act(&id, "terminate").await?;
    let path = format!("/sandboxes/{id}/files/stat?path=/root/note");
    let answer = stage.daemon().try_ask(Method::GET, &path, None).await?;
    ensure!(answer.status == 410, "its files can be read");
    stage.has_note(&stage.from(&files).await?, "first").await?;
    let child = stage.from(&memory).await?;
    witness.clone().counts(stage.daemon(), &child).await
}

pub(super) async fn nothing_of_it_answers(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    stage.act(&id, "terminate").await?;
    for verb in ["exec", "suspend", "resume", "checkpoint"] {
        let asked = if verb == "exec" { json!({ "argv": ["true"] }) } else { json!({}) };
        let answer = stage.daemon().try_ask(Method::POST, &format!("/sandboxes/{id}/{verb}"), Some(asked)).await?;
        ensure!(answer.status == 410, "{verb}: {} {}", answer.status, answer.body);
    }
    stage.act(&id, "terminate").await?;
    stage.is(&id, "terminated").await.map(drop)
}

pub(super) async fn its_room_is_free_again(stage: &dyn Stage) -> Result<()> {
    let id = stage.create(stage.large()).await?;
    stage.has_no_room("/sandboxes", stage.small()).await?;
    stage.act(&id, "terminate").await?;
    let id = stage.create(stage.large()).await?;
    stage.act(&id, "suspend").await?;
    stage.act(&id, "terminate").await?;
    stage.has_all_room().await?;
    stage.has_saved_states(0).await
}

pub(super) async fn its_volume_stays_and_is_free_again(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    for verbs in [&["terminate"][..], &["suspend", "terminate"]] {
        let id = stage.create(stage.writer()).await?;
        stage.puts(&id, "note", &id).await?;
        for verb in verbs {
            stage.act(&id, verb).await?;
        }
        stage.volume_has(DATA, "note", &id).await?;
        stage.another_writes().await?;
    }
    stage.daemon().ask(Method::DELETE, &format!("/volumes/{DATA}"), None).await.map(drop)
}
