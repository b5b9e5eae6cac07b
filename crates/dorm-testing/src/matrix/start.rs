//! Creating.

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::Value;

use super::Stage;
use super::volume::DATA;

pub(super) async fn memory_begins_empty_or_where_its_snapshot_was_taken(stage: &dyn Stage) -> Result<()> {
    let (id, witness) = stage.begin().await?;
    let snapshot = stage.snapshot(&id, "memory").await?;
    let child = stage.from(&snapshot).await?;
    witness.clone().counts(stage.daemon(), &child).await?;
    // A sandbox that begins empty has nothing of the counter's number.
    let empty = stage.create(stage.small()).await?;
    let mut own = stage.witness(&empty).await?;
    own.counts(stage.daemon(), &empty).await
}

pub(super) async fn files_are_those_it_starts_from(stage: &dyn Stage) -> Result<()> {
    let (id, _) = stage.begin().await?;
    let snapshot = stage.snapshot(&id, "filesystem").await?;
    stage.note(&id, "later").await?;
    stage.has_note(&stage.from(&snapshot).await?, "first").await?;
    stage.has_no_note(&stage.create(stage.small()).await?).await
}

pub(super) async fn nothing_runs_that_nobody_has_started(stage: &dyn Stage) -> Result<()> {
    let (id, witness) = stage.begin().await?;
    let (memory, files) = (stage.snapshot(&id, "memory").await?, stage.snapshot(&id, "filesystem").await?);
    for from in [stage.create(stage.small()).await?, stage.from(&files).await?] {
        let running = stage.processes(&from).await?;
        ensure!(running.is_empty(), "in {from} run {running:?}");
    }
    let running = stage.processes(&stage.from(&memory).await?).await?;
    ensure!(running == [witness.process], "from memory run {running:?}");
    Ok(())
}

pub(super) async fn one_that_is_being_created_counts_with_its_whole_limit(stage: &dyn Stage) -> Result<()> {
    let ask = || stage.daemon().try_ask(Method::POST, "/sandboxes", Some(stage.large()));
    let (first, second) = tokio::join!(ask(), ask());
    let answers = [first?, second?];
    let refused: Vec<&Value> =
        answers.iter().filter(|answer| answer.status == 507).map(|answer| &answer.body).collect();
    let made = answers.iter().filter(|answer| answer.status < 300).count();
    ensure!((made, refused.len()) == (1, 1), "{answers:?}");
    ensure!(refused.iter().all(|body| body["code"] == "no_room"), "{refused:?}");
    Ok(())
}

pub(super) async fn volumes_are_there_first_and_a_second_writer_is_refused(stage: &dyn Stage) -> Result<()> {
    stage.volume(DATA).await?;
    let id = stage.create(stage.writer()).await?;
    stage.sees(&id, "note", "first").await?;
    stage.is_taken("/sandboxes", stage.writer(), &id).await?;
    let all = stage.daemon().get("/sandboxes").await?;
    ensure!(all["sandboxes"].as_array().map(Vec::len) == Some(1), "something is left of what was refused: {all}");
    let reader = stage.create(stage.reader()).await?;
    stage.sees(&reader, "note", "first").await
}
