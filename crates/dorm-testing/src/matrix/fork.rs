//! Forks.

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde_json::json;

use super::Stage;
use super::volume::DATA;

async fn children(stage: &dyn Stage, id: &str) -> Result<Vec<String>> {
    let asked = json!({ "children": [{}, {}], "on_partial_failure": "roll_back" });
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
    let asked = json!({ "children": [{}, {}, {}, {}], "on_partial_failure": "roll_back" });
    let answer = stage.daemon().try_ask(Method::POST, &format!("/sandboxes/{id}/fork"), Some(asked)).await?;
    ensure!(answer.status == 507, "{} {}", answer.status, answer.body);
    let living = stage.daemon().get("/sandboxes?state=running").await?;
    ensure!(living["sandboxes"].as_array().map(Vec::len) == Some(1), "{living}");
    stage.has_saved_states(0).await?;
    stage.act(&id, "terminate").await?;
    stage.has_all_room().await
}

pub(super) async fn children_have_its_volumes_as_it_is_asked(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let id = stage.create(stage.writer()).await?;
    let path = format!("/sandboxes/{id}/fork");
    stage.is_taken(&path, json!({ "count": 1, "volumes": "same" }), &id).await?;
    let child = async |volumes: &str| -> Result<String> {
        let forked = stage.daemon().post(&path, json!({ "count": 1, "volumes": volumes })).await?;
        Ok(forked["children"][0]["sandbox"]["id"].as_str().context("an id")?.to_owned())
    };
    let reader = child("read_only").await?;
    stage.puts(&id, "note", "later").await?;
    stage.sees(&reader, "note", "later").await?;
    stage.cannot_write(&reader).await?;
    stage.sees_nothing(&child("none").await?).await?;
    stage.sees(&id, "note", "later").await
}
