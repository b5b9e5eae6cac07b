//! Every operation of the OpenAPI document is reachable, and nothing else is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dorm_client::types::{self, Text, Time};
use dorm_client::{Client, Find, Grep, Position, SandboxFilter, Wanted};
use futures_util::stream;
use serde_json::Value;

use crate::server::{Answer, Request, Server};

/// An operation: method, and path with its parameters in braces.
type Operation = (String, String);

/// The operations of the document, each with the headers that it accepts.
fn document() -> BTreeMap<Operation, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut operations = BTreeMap::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let headers = parameters.iter().filter(|of| of["in"] == "header");
            let headers = headers.map(|of| of["name"].as_str().unwrap().to_ascii_lowercase()).collect();
            operations.insert((method.to_uppercase(), path.clone()), headers);
        }
    }
    operations
}

/// The operation that a request is of: of several that fit, the one with the fewest parameters.
fn operation_of(request: &Request, operations: &BTreeMap<Operation, BTreeSet<String>>) -> Option<Operation> {
    let fits = |template: &str| {
        let (asked, named): (Vec<_>, Vec<_>) = (request.path.split('/').collect(), template.split('/').collect());
        let fits = |(asked, named): (&&str, &&str)| asked == named || named.starts_with('{');
        asked.len() == named.len() && asked.iter().zip(&named).all(fits)
    };
    let of_method = operations.keys().filter(|(method, template)| *method == request.method && fits(template));
    of_method.min_by_key(|(_, template)| template.matches('{').count()).cloned()
}

fn bytes() -> impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static {
    stream::iter([Ok(bytes::Bytes::from_static(b"x"))])
}

fn text() -> Text {
    Text::Plain("/x".to_owned())
}

async fn call_sandboxes(client: &Client) {
    drop(client.create(&types::CreateSandbox::default()).await);
    drop(client.sandboxes(&SandboxFilter::default()).await);
    drop(client.describe("s").await);
    drop(client.suspend("s", types::SuspendRequest::default()).await);
    drop(client.resume("s", &types::ResumeRequest::default()).await);
    drop(client.evict("s").await);
    drop(client.terminate("s", types::CommandRequest::default()).await);
    drop(client.delete_sandbox("s").await);
    drop(client.update("s", &types::UpdateSandbox::default()).await);
    drop(client.extend("s", &types::ExtendSandbox { timeout_secs: 1.0 }).await);
    drop(client.set_timeouts("s", &types::SetTimeouts::default()).await);
    drop(client.set_egress("s", &types::SetEgress { egress: types::Egress::None }).await);
    let hold = types::HoldRequest { ttl_secs: 1.0, reason: "r".to_owned(), renew: None };
    drop(client.hold("s", &hold).await);
    drop(client.release("s", "h").await);
    drop(client.set_retention("s", &types::SetRetention::default()).await);
    drop(client.set_checkpoints("s", &types::SetCheckpoints::default()).await);
    drop(client.why("s").await);
    drop(client.usage("s").await);
    drop(client.usage_history("s", Time::from_millis(0)).await);
    drop(client.port("s", 80).await);
    drop(client.port_link("s", 80).await);
    let volume = types::AttachVolume { volume: "v".to_owned(), path: "/v".to_owned(), read_only: false, subpath: None };
    drop(client.attach("s", &volume).await);
    drop(client.detach("s", "/v").await);
}

async fn call_copies(client: &Client) {
    drop(client.checkpoint("s", &types::CheckpointRequest::default()).await);
    drop(client.clone_sandbox("s", &types::CloneRequest::default()).await);
    drop(client.fork("s", &types::ForkRequest::default()).await);
    drop(client.rewind("s", &types::RewindRequest::default()).await);
    drop(client.promote("s", &types::PromoteRequest::default()).await);
    drop(client.restart("s", &types::RestartRequest::default()).await);
    drop(client.tree(Some("s"), true).await);
    drop(client.diff("a", "b", types::DiffOrder::Given).await);
    drop(client.snapshots(Some("s")).await);
    drop(client.snapshot("n").await);
    drop(client.delete_snapshot("n", true).await);
    drop(client.export_snapshot("n").await);
    drop(client.import_snapshot(&BTreeMap::new(), Some(1.0), Some(1), bytes()).await);
    drop(client.snapshot_files("n").await);
    let (reference, insecure) = ("r/x".to_owned(), false);
    drop(client.push_snapshot("n", &types::PushSnapshot { reference: reference.clone(), insecure }).await);
    let pull: types::PullSnapshot = serde_json::from_value(serde_json::json!({ "reference": reference })).unwrap();
    drop(client.pull_snapshot(&pull).await);
}

async fn call_inside(client: &Client) {
    drop(client.exec("s", &types::ExecRequest::default()).await);
    drop(client.exec_whole("s", &types::ExecRequest::default()).await);
    drop(client.start("s", &types::StartProcess::default()).await);
    drop(client.follow("s", 1, Position::default()).await);
    drop(client.output("s", 1, Position::default(), false).await);
    drop(client.wait("s", 1).await);
    drop(client.feed("s", 1, bytes()).await);
    drop(client.write_stdin("s", 1, "x").await);
    drop(client.close_stdin("s", 1).await);
    drop(client.processes("s", Some("l")).await);
    drop(client.process("s", 1).await);
    drop(client.kill("s", 1).await);
    drop(client.signal("s", 1, 15).await);
    let signal = types::SignalRequest { signal: 15, target: types::SignalTarget::Process };
    drop(client.send_signal("s", 1, signal).await);
    drop(client.resize("s", 1, types::TerminalSize { rows: 1, cols: 1 }).await);
    drop(client.terminal("s", &[("rows", "1".to_owned())]).await);
    drop(client.start_service("s", &types::StartService::default()).await);
    drop(client.services("s").await);
    drop(client.service("s", "n").await);
    drop(client.service_events("s", "n").await);
    drop(client.service_log("s", "n", false).await);
    drop(client.stop_service("s", "n", &types::StopService::default()).await);
    drop(client.remove_service("s", "n").await);
}

async fn call_files(client: &Client) {
    drop(client.stat("s", "/x").await);
    drop(client.list("s", "/x", 1, Some("a")).await);
    drop(client.make_directory("s", "/x").await);
    let directory = types::MakeDirectory { path: text(), parents: None, exclusive: None, user: None };
    drop(client.create_directory("s", &directory).await);
    drop(client.rename("s", &types::Rename { from: text(), to: text(), parents: None, user: None }).await);
    drop(client.delete_file("s", "/x", true).await);
    drop(client.read_file("s", "/x").await);
    drop(client.read_range("s", "/x", 1..2).await);
    drop(client.write_file("s", "/x", Wanted::default(), bytes()).await);
    drop(client.attributes("s", "/x").await);
    let attributes = types::SetFileAttributes { path: text(), set: Vec::new(), remove: Vec::new() };
    drop(client.set_attributes("s", &attributes).await);
    drop(client.find("s", &Find::default()).await);
    drop(client.grep("s", &Grep::default()).await);
    drop(client.watch("s", "/x", true).await);
    drop(client.create_watcher("s", &types::CreateWatcher { path: text(), recursive: None }).await);
    drop(client.watchers("s").await);
    drop(client.take_changes("s", 1, "0").await);
    drop(client.remove_watcher("s", 1).await);
    drop(client.volume_files("v", "/").await);
    drop(client.read_volume("v", "/x").await);
    drop(client.write_volume("v", "/x", bytes()).await);
}

async fn call_images(client: &Client) {
    drop(client.images().await);
    drop(client.image("i").await);
    drop(client.import_image(&types::ImportImage { path: "/x".to_owned(), tag: None }).await);
    let pull: types::PullImage = serde_json::from_value(serde_json::json!({ "reference": "r" })).unwrap();
    drop(client.pull_image(&pull).await);
    drop(client.upload_image(Some("t"), Some(1), bytes()).await);
    drop(client.compose_image(&types::ComposeImage::default()).await);
    drop(client.download_image("i").await);
    drop(client.export_image("i", &types::ExportImage { path: "/x".to_owned() }).await);
    drop(client.delete_image("i").await);
    drop(client.has_context("h").await);
    drop(client.upload_context("h", bytes()).await);
    drop(client.create_build(&types::CreateBuild::default()).await);
    drop(client.builds().await);
    drop(client.build("b").await);
    drop(client.await_build("b").await);
    drop(client.cancel_build("b").await);
    drop(client.build_log("b", 0).await);
    drop(client.follow_build("b", 0).await);
    drop(client.create_template(&types::CreateTemplate::default()).await);
    drop(client.templates().await);
    drop(client.template("t").await);
    drop(client.tag_template("t", &types::TagTemplate::default()).await);
    drop(client.delete_template("t", Some("x")).await);
}

async fn call_environments(client: &Client) {
    let ensure = types::EnsureRequest::default();
    drop(client.ensure(&ensure).await);
    drop(client.explain_ensure(&ensure).await);
    drop(client.environments().await);
    drop(client.environment("e").await);
    drop(client.cancel_environment("e").await);
    drop(client.release_environment("e", &serde_json::from_str("{}").unwrap()).await);
    let renew = serde_json::from_value(serde_json::json!({ "lease_secs": 60.0 })).unwrap();
    drop(client.renew_environment_lease("e", "l", &renew).await);
    drop(client.remove_environment("e").await);
    drop(client.environment_log("e", 0).await);
}

async fn call_daemon(client: &Client) {
    drop(client.health().await);
    drop(client.info().await);
    drop(client.metrics().await);
    drop(client.openapi().await);
    drop(client.authority().await);
    drop(client.operations(Some("s"), 1).await);
    drop(client.operation("o").await);
    drop(client.operation_within("o", 1).await);
    drop(client.events(Some("s"), 0, Some(1)).await);
    drop(client.follow_events(Some("s"), 0).await);
    drop(client.items().await);
    drop(client.collect(true).await);
    drop(client.stored().await);
    drop(client.verify(&types::Stored { kind: "k".to_owned(), id: "i".to_owned() }).await);
    drop(client.quarantine().await);
    drop(client.create_webhook(&types::CreateWebhook::default()).await);
    drop(client.webhooks().await);
    drop(client.replay_webhook("w", 0).await);
    drop(client.delete_webhook("w").await);
}

async fn call_projects(client: &Client) {
    drop(client.create_pool(&types::CreatePool::default()).await);
    drop(client.pools().await);
    drop(client.pool("p").await);
    drop(client.resize_pool("p", &types::ResizePool { ready: 1, most: None }).await);
    drop(client.claim("p", &types::ClaimRequest::default()).await);
    drop(client.delete_pool("p").await);
    let budgets = types::ProjectBudgets::default();
    drop(client.create_project(&types::CreateProject { name: "p".to_owned(), budgets }).await);
    drop(client.projects().await);
    drop(client.project("p").await);
    drop(client.set_budgets("p", &budgets).await);
    drop(client.delete_project("p").await);
    drop(client.set_secret("x", &types::SetSecret { value: types::Secret("v".to_owned()) }).await);
    drop(client.secrets().await);
    drop(client.secret("x").await);
    drop(client.delete_secret("x").await);
    drop(client.create_key(&types::CreateKey::default()).await);
    drop(client.keys().await);
    drop(client.delete_key("k").await);
    let volume = types::CreateVolume { name: "v".to_owned(), size_bytes: None, writers: None };
    drop(client.create_volume(&volume).await);
    drop(client.volumes().await);
    drop(client.volume("v").await);
    drop(client.delete_volume("v").await);
}

/// Calls every method, with a client that wakes sandboxes, and returns the requests.
async fn call_all() -> Vec<Request> {
    let server = Server::new(|_, _| Answer::json(200, "{}"));
    let client = server.client_without_retries().waking();
    call_sandboxes(&client).await;
    call_copies(&client).await;
    call_inside(&client).await;
    call_files(&client).await;
    call_images(&client).await;
    call_environments(&client).await;
    call_daemon(&client).await;
    call_projects(&client).await;
    server.take()
}

#[tokio::test]
async fn every_operation_of_the_document_has_a_method() {
    let document = document();
    let mut sent = BTreeSet::new();
    for request in call_all().await {
        let operation = operation_of(&request, &document);
        let operation =
            operation.unwrap_or_else(|| panic!("{} {} is no operation of the document", request.method, request.path));
        sent.insert(operation);
    }
    let missing: Vec<_> = document.keys().filter(|operation| !sent.contains(operation)).collect();
    assert!(missing.is_empty(), "operations without a method: {missing:?}");
    assert_eq!(sent.len(), document.len());
}

#[tokio::test]
async fn requests_have_the_headers_that_their_operations_accept() {
    let document = document();
    for request in call_all().await {
        let operation = operation_of(&request, &document).unwrap();
        for header in ["idempotency-key", "x-dormouse-wake"] {
            let (is_sent, is_accepted) = (request.header(header).is_some(), document[&operation].contains(header));
            assert_eq!(is_sent, is_accepted, "{operation:?}: {header}");
        }
        assert_eq!(request.header("authorization"), Some("Bearer key"), "{operation:?}");
    }
}

/// The test above is complete only if it calls every method.
#[test]
fn this_test_calls_every_method() {
    let here = include_str!("operations.rs");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/client");
    let mut methods = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let Some((_, client)) = text.split_once("\nimpl Client {") else { continue };
        let client = client.split("\n}\n").next().unwrap();
        for line in client.lines().filter_map(|line| line.strip_prefix("    pub async fn ")) {
            let name = line.split(['(', '<']).next().unwrap();
            // A connection for other protocols is no operation.
            if name != "connect" {
                assert!(here.contains(&format!("client.{name}(")), "{name} is not called");
                methods += 1;
            }
        }
    }
    assert!(methods > document().len(), "{methods}");
}
