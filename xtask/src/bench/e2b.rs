//! The door for clients of E2B, beside the native API of the same daemon.

mod client;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use self::client::{E2bClient, Place};
use super::guest::is_in;
use super::millis;
use super::rows::{Row, Unit};
use super::stage::{Stage, resident_mib};
use crate::setup::INTERPRETER_READY;

/// The size of the file that is written and read.
const FILE_MIB: usize = 256;
/// How many sandboxes the list has, and how many a page.
const LISTED: usize = 1000;
const PAGE: usize = 100;
/// How many streams say nothing.
const SILENT: usize = 500;
/// The port of the server in the template.
const PORT: u16 = 8000;
const SERVER: &str = "cd /usr/share && exec python3 -m http.server 8000 >/dev/null 2>&1";
/// The image of the code interpreter, and the template that is made of it.
const INTERPRETER: &str = "code-interpreter-v1";
const TEMPLATE: &str = "bench-interpreter";
/// The interval between two questions whether a port answers.
const AGAIN: Duration = Duration::from_millis(5);

/// Measures both doors in turn.
pub(super) async fn beside_native(stage: &Stage, daemon: &Daemon) -> Result<Vec<Row>> {
    let client = E2bClient::of(daemon).await?;
    let mut rows = lifecycle(stage, daemon, &client).await?;
    rows.extend(files(stage, daemon, &client).await?);
    rows.push(template(stage, daemon, &client).await?);
    rows.push(interpreter(stage, daemon, &client).await?);
    rows.extend(silent_streams(daemon, &client).await?);
    daemon.end_sandboxes().await?;
    rows.push(page(stage, daemon, &client).await?);
    Ok(rows)
}

async fn lifecycle(stage: &Stage, daemon: &Daemon, client: &E2bClient) -> Result<Vec<Row>> {
    let mut create = Row::new("E2B: create to first command", 1.2).beside("own native create and exec");
    let mut run = Row::new("E2B: run of true", 1.25).beside("own native exec of the same login shell");
    let mut connect =
        Row::new("E2B: connect of a parked sandbox to first command", 1.2).beside("own native resume and exec");
    for round in 0..stage.rounds(15) {
        let began = Instant::now();
        let place = client.create(json!({ "templateID": "base" })).await?;
        client.runs(&place, "true").await?;
        create.ours.push(millis(began));
        let began = Instant::now();
        let native = daemon.create(json!({ "image": "base", "name": format!("e2b{round}") })).await?;
        logs_in(daemon, &native).await?;
        create.peer.push(millis(began));
        for _ in 0..3 {
            let began = Instant::now();
            client.runs(&place, "true").await?;
            run.ours.push(millis(began));
            let began = Instant::now();
            logs_in(daemon, &native).await?;
            run.peer.push(millis(began));
        }
        client.control(Method::POST, &format!("/sandboxes/{}/pause", place.id), json!({})).await?;
        let began = Instant::now();
        client.control(Method::POST, &format!("/v2/sandboxes/{}/connect", place.id), json!({})).await?;
        client.runs(&place, "true").await?;
        connect.ours.push(millis(began));
        is_in(daemon, &native, "suspend", "parked").await?;
        let began = Instant::now();
        daemon.act(&native, "resume").await?;
        logs_in(daemon, &native).await?;
        connect.peer.push(millis(began));
        daemon.act(&native, "terminate").await?;
        daemon.act(&place.id, "terminate").await?;
    }
    Ok(vec![create, run, connect])
}

/// Runs `true` in a login shell, as E2B's clients run each command.
async fn logs_in(daemon: &Daemon, id: &str) -> Result<()> {
    ensure!(daemon.exec(id, &["/bin/bash", "-l", "-c", "true"]).await?.0 == 0, "true failed in {id}");
    Ok(())
}

async fn files(stage: &Stage, daemon: &Daemon, client: &E2bClient) -> Result<Vec<Row>> {
    let mut up = Row::new(format!("E2B: upload of {FILE_MIB} MiB"), 1.2).beside("own native upload");
    let mut down = Row::new(format!("E2B: download of {FILE_MIB} MiB"), 1.2).beside("own native download");
    let place = client.create(json!({ "templateID": "base" })).await?;
    let content = bytes::Bytes::from(vec![7_u8; FILE_MIB << 20]);
    for _ in 0..stage.rounds(5) {
        let began = Instant::now();
        client.upload(&place, "/tmp/ours", content.clone()).await?;
        up.ours.push(millis(began));
        let began = Instant::now();
        let path = format!("/sandboxes/{}/files?path=/tmp/peer", place.id);
        daemon.request(Method::PUT, &path).body(content.clone()).send().await?.error_for_status()?;
        up.peer.push(millis(began));
        let began = Instant::now();
        ensure!(client.download(&place, "/tmp/ours").await? == content.len(), "the download is not whole");
        down.ours.push(millis(began));
        let began = Instant::now();
        let answer = daemon.request(Method::GET, &path).send().await?.error_for_status()?;
        ensure!(client::drain(answer).await? == content.len(), "the download is not whole");
        down.peer.push(millis(began));
    }
    daemon.act(&place.id, "terminate").await?;
    Ok(vec![up, down])
}

/// A sandbox of a template in which a server runs, beside one in which it is started.
async fn template(stage: &Stage, daemon: &Daemon, client: &E2bClient) -> Result<Row> {
    let mut row = Row::new("E2B: create from a template with a started server, to its answer", 0.5)
        .beside("E2B: create from base, start and answer");
    let source = client.create(json!({ "templateID": "base" })).await?;
    client.starts(&source, SERVER).await?;
    client.visit(&source, PORT).await?;
    let path = format!("/sandboxes/{}/snapshots", source.id);
    client.control(Method::POST, &path, json!({ "name": "bench-server" })).await?;
    for _ in 0..stage.rounds(9) {
        let began = Instant::now();
        let ours = client.create(json!({ "templateID": "bench-server" })).await?;
        client.visit(&ours, PORT).await?;
        row.ours.push(millis(began));
        let began = Instant::now();
        let peer = client.create(json!({ "templateID": "base" })).await?;
        client.starts(&peer, SERVER).await?;
        client.visit(&peer, PORT).await?;
        row.peer.push(millis(began));
        for place in [ours, peer] {
            daemon.act(&place.id, "terminate").await?;
        }
    }
    client.control(Method::DELETE, "/templates/bench-server", Value::Null).await?;
    Ok(row)
}

async fn interpreter(stage: &Stage, daemon: &Daemon, client: &E2bClient) -> Result<Row> {
    let mut row = Row::new("E2B: run_code of 1", 0.5).beside("E2B: run of python3 -c 1");
    build_interpreter(daemon)?;
    let place = client.create(json!({ "templateID": TEMPLATE })).await?;
    client.run_code(&place, "1").await?;
    for _ in 0..stage.rounds(15) {
        let began = Instant::now();
        client.run_code(&place, "1").await?;
        row.ours.push(millis(began));
        let began = Instant::now();
        client.runs(&place, "python3 -c 1").await?;
        row.peer.push(millis(began));
    }
    daemon.act(&place.id, "terminate").await?;
    // Its image stays: it is the one that the tests use, under another name.
    client.control(Method::DELETE, &format!("/templates/{TEMPLATE}"), Value::Null).await?;
    Ok(row)
}

/// Makes the template of the code interpreter, in which its server runs.
fn build_interpreter(daemon: &Daemon) -> Result<()> {
    let mut build = Command::new(daemon.program());
    build.args(["image", "build", "--from", INTERPRETER, "--template", TEMPLATE, "--ready-cmd", INTERPRETER_READY]);
    build.args(["--memory", "2G", "--disk", "8G", "--data"]).arg(daemon.data());
    let output = build.output().context("run dorm image build")?;
    ensure!(output.status.success(), "dorm image build: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The memory of the daemon with many streams that say nothing.
async fn silent_streams(daemon: &Daemon, client: &E2bClient) -> Result<Vec<Row>> {
    let mut row = Row::shown(format!("E2B: memory of the daemon with {SILENT} silent streams"))
        .unit(Unit::Mib)
        .beside("without them");
    let mut places: Vec<Place> = Vec::new();
    for _ in 0..4 {
        places.push(client.create(json!({ "templateID": "base" })).await?);
    }
    row.peer.push(resident_mib(daemon.pid())?);
    let mut streams = Vec::with_capacity(SILENT);
    for at in 0..SILENT {
        let place = places.get(at % places.len()).context("a sandbox")?;
        streams.push(client.stream(place, "sleep 600").await?);
    }
    row.ours.push(resident_mib(daemon.pid())?);
    drop(streams);
    for place in places {
        daemon.act(&place.id, "terminate").await?;
    }
    Ok(vec![row])
}

/// A page of many sandboxes.
async fn page(stage: &Stage, daemon: &Daemon, client: &E2bClient) -> Result<Row> {
    let many = if stage.short { LISTED / 10 } else { LISTED };
    let mut row =
        Row::new(format!("E2B: page of {PAGE} of {many} sandboxes"), 1.5).beside("own page of the native API");
    eprintln!("bench: {many} suspended sandboxes");
    for at in 0..many {
        let resources = json!({ "memory_bytes": 64_u64 << 20 });
        let name = format!("listed{at}");
        let id = daemon.create(json!({ "image": "base", "name": name, "resources": resources })).await?;
        daemon.act(&id, "suspend").await?;
        daemon.act(&id, "evict").await?;
    }
    for _ in 0..stage.rounds(31) {
        let began = Instant::now();
        let listed = client.control(Method::GET, &format!("/v2/sandboxes?limit={PAGE}"), Value::Null).await?;
        row.ours.push(millis(began));
        ensure!(listed.as_array().is_some_and(|all| all.len() == PAGE), "the page is not full");
        let began = Instant::now();
        let listed =
            daemon.get(&format!("/sandboxes?limit={PAGE}&state=running,suspended&sort=started&order=desc")).await?;
        row.peer.push(millis(began));
        ensure!(listed["sandboxes"].as_array().is_some_and(|all| all.len() == PAGE), "the page is not full");
    }
    Ok(row)
}
