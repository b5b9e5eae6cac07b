//! Forks.

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::json;

use super::Stage;

async fn children(stage: &dyn Stage, id: &str) -> Result<Vec<String>> {
    let asked = json!({ "children": [{}, {}], "all_or_none": true });
    let forked = stage.daemon().post(&format!("/sandboxes/{id}/fork"), asked).await?;
    let children = forked["children"].as_array().context("children")?;
    children.iter().map(|child| Ok(child["sandbox"]["id"].as_str().context("an id")?.to_owned())).collect()
}

pub(super) async fn children_have_its_memory_and_go_their_own_ways(stage: &dyn Stage) -> Result<()> {
    let (id, mut witness) = stage.begin().await?;
    for child in children(stage, &id).await? {
        let mut its = witness.clone();
        its.counts(stage.daemon(), &child).await?;
        its.counts(stage.daemon(), &child).await?;
    }
    witness.counts(stage.daemon(), &id).await
}

pub(super) async fn children_have_its_files_and_go_their_own_ways(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    for child in children(stage, &id).await? {
        stage.has_note(&child, "first").await?;
        stage.note(&child, &child).await?;
        stage.has_note(&child, &child).await?;
    }
    stage.has_note(&id, "first").await
}

pub(super) async fn children_have_its_processes(stage: &dyn Stage) -> Result<()> {
    let (id, witness) = stage.begin().await?;
    let mut family = children(stage, &id).await?;
    family.push(id);
    for id in family {
        ensure!(stage.processes(&id).await? == [witness.process], "{id} has others");
        witness.clone().counts(stage.daemon(), &id).await?;
    }
    Ok(())
}

pub(super) async fn children_without_room_leave_nothing(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    let asked = json!({ "children": [{}, {}, {}, {}], "all_or_none": true });
    let answer = stage.daemon().try_ask(Method::POST, &format!("/sandboxes/{id}/fork"), Some(asked)).await?;
    ensure!(answer.status == 507, "{} {}", answer.status, answer.body);
    let living = stage.daemon().get("/sandboxes?state=running").await?;
    ensure!(living["sandboxes"].as_array().map(Vec::len) == Some(1), "{living}");
    stage.has_captures(0).await?;
    stage.act(&id, "terminate").await?;
    stage.has_all_room().await
}
