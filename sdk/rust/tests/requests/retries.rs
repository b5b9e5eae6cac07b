//! Requests are repeated where that is safe, and never elsewhere.

use std::time::Duration;

use dorm_client::types::{self, CreateSandbox, EnsureRequest};
use dorm_client::{Client, Dormouse, EnsureEvent, Position, Retries};

use crate::server::{Answer, Server};

/// A client that does not take long to give up.
fn patient(server: &Server, requests: u32) -> Client {
    server.client().with_retries(Retries { requests, streams: Duration::from_secs(20) })
}

fn health(number: usize, failures: usize, failure: &Answer) -> Answer {
    if number < failures { failure.clone() } else { Answer::json(200, r#"{"status":"ok"}"#) }
}

#[tokio::test]
async fn a_read_is_repeated_after_a_lost_connection() {
    let server = Server::new(|number, _| health(number, 2, &Answer::Nothing));
    assert_eq!(patient(&server, 2).health().await.unwrap().status, "ok");
    assert_eq!(server.take().len(), 3);
}

#[tokio::test]
async fn a_read_is_repeated_while_the_daemon_is_not_available() {
    let server = Server::new(|number, _| health(number, 1, &Answer::problem(503, "unavailable")));
    assert_eq!(patient(&server, 1).health().await.unwrap().status, "ok");
}

#[tokio::test]
async fn a_read_is_repeated_while_a_proxy_does_not_reach_the_daemon() {
    let server = Server::new(|number, _| health(number, 1, &Answer::json(502, "bad gateway")));
    assert_eq!(patient(&server, 1).health().await.unwrap().status, "ok");
}

#[tokio::test]
async fn the_pause_is_the_one_that_the_daemon_asks_for() {
    let problem = r#"{"type":"","title":"","status":503,"detail":"d","code":"unavailable","next_step":""}"#;
    let server = Server::new(move |_, _| Answer::Response(503, "retry-after: 7\r\n", problem.to_owned()));
    let error = patient(&server, 0).health().await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_refusal_is_final() {
    let server = Server::new(|number, _| health(number, 1, &Answer::problem(404, "not_found")));
    assert!(patient(&server, 5).health().await.unwrap_err().is_not_found());
    assert_eq!(server.take().len(), 1);
}

#[tokio::test]
async fn the_number_of_attempts_is_limited() {
    let server = Server::new(|_, _| Answer::Nothing);
    assert_eq!(patient(&server, 2).health().await.unwrap_err().code(), "connection_lost");
    assert_eq!(server.take().len(), 3);
}

#[tokio::test]
async fn without_retries_a_request_is_sent_once() {
    let server = Server::new(|_, _| Answer::Nothing);
    server.client_without_retries().health().await.unwrap_err();
    assert_eq!(server.take().len(), 1);
}

#[tokio::test]
async fn a_creation_is_repeated_with_the_same_key() {
    let server = Server::new(|number, _| if number < 2 { Answer::Nothing } else { Answer::problem(409, "conflict") });
    patient(&server, 2).create(&CreateSandbox::default()).await.unwrap_err();
    let keys: Vec<_> =
        server.take().iter().map(|request| request.header("idempotency-key").unwrap().to_owned()).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn each_creation_has_a_key_of_its_own_unless_it_was_chosen() {
    let server = Server::new(|_, _| Answer::problem(409, "conflict"));
    let client = server.client_without_retries();
    for client in [&client, &client, &client.with_idempotency_key("mine")] {
        client.create(&CreateSandbox::default()).await.unwrap_err();
    }
    let sent = server.take();
    let keys: Vec<_> = sent.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
    assert_ne!(keys[0], keys[1]);
    assert_eq!(keys[2], "mine");
}

#[tokio::test]
async fn a_change_without_a_key_is_never_repeated() {
    let server = Server::new(|_, _| Answer::Nothing);
    let client = patient(&server, 3);
    client.suspend("s", types::SuspendRequest::default()).await.unwrap_err();
    client.exec_whole("s", &types::ExecRequest::default()).await.unwrap_err();
    client.delete_snapshot("s", false).await.unwrap_err();
    client.set_budgets("p", &types::ProjectBudgets::default()).await.unwrap_err();
    client.update("s", &types::UpdateSandbox::default()).await.unwrap_err();
    assert_eq!(server.take().len(), 5);
}

#[tokio::test]
async fn a_body_that_is_a_stream_is_sent_once() {
    let server = Server::new(|_, _| Answer::Nothing);
    let contents = futures_util::stream::iter([Ok(bytes::Bytes::from_static(b"x"))]);
    patient(&server, 3).import_snapshot(&Default::default(), None, None, contents).await.unwrap_err();
    assert_eq!(server.take().len(), 1);
}

const STARTED: &str = "event: started\ndata: {\"process\":7,\"pid\":9}\n\n";
const EXIT: &str = "event: exit\ndata: {\"exit_code\":0,\"signal\":null}\n\n";

fn stdout(offset: u64, text: &str) -> String {
    format!("event: stdout\ndata: {{\"offset\":{offset},\"data\":\"{text}\",\"encoding\":\"utf8\"}}\n\n")
}

#[tokio::test]
async fn a_command_is_followed_further_after_a_lost_connection() {
    let server = Server::new(|number, _| match number {
        0 => Answer::Events(format!("{STARTED}{}", stdout(0, "one "))),
        1 => Answer::Nothing,
        2 => Answer::Events(stdout(4, "two ")),
        _ => Answer::Events(format!("{}{EXIT}", stdout(8, "three"))),
    });
    let sandbox = Dormouse::new(patient(&server, 0)).sandbox("s");
    let output = sandbox.exec("count").await.unwrap();
    assert_eq!(output.stdout_text(), "one two three");
    let sent = server.take();
    assert_eq!(sent[0].path, "/v1/sandboxes/s/exec");
    assert!(sent[1..].iter().all(|request| request.path == "/v1/sandboxes/s/processes/7/output"));
    assert_eq!(sent[3].query, "stdout=8&stderr=0&follow=true");
}

#[tokio::test]
async fn a_command_that_has_not_started_is_not_started_again() {
    let server = Server::new(|_, _| Answer::Events(String::new()));
    let error = Dormouse::new(patient(&server, 3)).sandbox("s").exec("count").await.unwrap_err();
    assert_eq!(error.code(), "connection_lost");
    assert_eq!(server.take().len(), 1);
}

#[tokio::test]
async fn without_retries_a_stream_ends_with_its_connection() {
    let server = Server::new(|_, _| Answer::Events(stdout(0, "one")));
    let process = Dormouse::new(server.client_without_retries()).sandbox("s").process(7);
    let mut stream = process.output(Position::default()).await.unwrap();
    assert!(stream.next().await.unwrap().is_some());
    assert_eq!(stream.next().await.unwrap_err().code(), "connection_lost");
    assert_eq!(stream.position(), Position { stdout: 3, stderr: 0 });
}

#[tokio::test]
async fn events_continue_after_the_last_one() {
    let event = |number: u64| {
        format!(
            "event: created\ndata: {{\"number\":{number},\"at\":\"2026-01-01T00:00:00Z\",\"project\":\"p\",\"sandbox\":\"s\",\
             \"kind\":\"created\",\"initiator\":\"user\",\"operation\":null,\"generation\":1,\"detail\":null,\
             \"took_ms\":null,\"bytes\":null}}\n\n"
        )
    };
    let server = Server::new(move |number, _| Answer::Events(event(number as u64 + 1)));
    let mut events = Dormouse::new(patient(&server, 0)).events(0).await.unwrap();
    for number in 1..=3 {
        assert_eq!(events.next().await.unwrap().number, number);
    }
    let after: Vec<_> = server.take().into_iter().map(|request| request.query).collect();
    assert_eq!(after, ["after=0", "after=1", "after=2"]);
}

#[tokio::test]
async fn an_environment_is_asked_for_again_with_the_same_key_and_lines_come_once() {
    let line = |offset: u64| {
        format!(
            "event: line\ndata: {{\"offset\":{offset},\"at\":\"2026-01-01T00:00:00Z\",\"step\":null,\"stream\":\"daemon\",\
             \"text\":\"line {offset}\"}}\n\n"
        )
    };
    let server = Server::new(move |number, _| match number {
        0 => Answer::Events(line(0)),
        1 => Answer::problem(503, "unavailable"),
        2 => Answer::Events(format!("{}{}", line(0), line(1))),
        _ => Answer::problem(409, "conflict"),
    });
    let asked = EnsureRequest { key: Some("k".to_owned()), ..EnsureRequest::default() };
    let mut events = Dormouse::new(patient(&server, 0)).ensure(asked).events().await.unwrap();
    let mut lines = Vec::new();
    let error = loop {
        match events.next().await {
            Ok(Some(EnsureEvent::Line(line))) => lines.push(line.offset),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!((lines, error.code()), (vec![0, 1], "conflict"));
    let sent = server.take();
    let keys: Vec<_> = sent.iter().map(|request| request.header("idempotency-key").unwrap()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}
