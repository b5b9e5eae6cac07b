//! Errors have a code, a text and a next step, whatever has failed.

use std::sync::{Condvar, Mutex};

use dorm_client::{Client, ClientError, Dormouse, Retries};

use crate::server::{Answer, Server};

#[tokio::test]
async fn a_refusal_has_what_the_daemon_says() {
    let server = Server::new(|_, _| Answer::problem(409, "conflict"));
    let error = server.client().info().await.unwrap_err();
    assert_eq!((error.code(), error.status(), error.next_step()), ("conflict", Some(409), "do it"));
    assert_eq!(error.to_string(), "it is conflict");
    assert!(!error.is_retryable() && error.is_refusal());
}

#[tokio::test]
async fn another_server_is_no_daemon() {
    let server = Server::new(|_, _| Answer::json(418, "teapot"));
    let error = server.client().info().await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("not_a_daemon", Some(418)));
    assert!(error.to_string().contains(server.address()), "{error}");
}

#[tokio::test]
async fn a_response_that_cannot_be_read_is_an_error() {
    let server = Server::new(|_, _| Answer::json(200, "[]"));
    let error = server.client().info().await.unwrap_err();
    assert_eq!(error.code(), "unreadable_response");
    assert!(!error.is_retryable() && !error.next_step().is_empty());
}

#[tokio::test]
async fn nothing_at_the_address_is_unreachable() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let client = Client::new(&server, String::new(), None).unwrap().with_retries(Retries::NONE);
    let error = client.info().await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("unreachable", None));
    assert!(error.is_retryable() && error.next_step().contains("DORM_SERVER"));
}

#[test]
fn an_address_is_checked_before_anything_is_sent() {
    for server in ["localhost:7070", "ftp://host", "http://host/path"] {
        let error = Dormouse::at(server, None, None).unwrap_err();
        assert!(matches!(error, ClientError::Address(_)), "{server}: {error}");
        assert_eq!(error.code(), "invalid_address");
    }
}

#[test]
fn a_socket_needs_a_directory() {
    let error = Dormouse::at("unix:/no/such/directory/api.sock", None, None).unwrap_err();
    assert_eq!(error.code(), "unreachable");
}

#[tokio::test]
async fn a_key_that_is_no_header_is_no_request() {
    let client = Client::new("http://127.0.0.1:1", "two\nlines".to_owned(), None).unwrap();
    assert_eq!(client.info().await.unwrap_err().code(), "invalid_request");
}

#[test]
fn neither_errors_nor_clients_show_the_key() {
    let client = Client::new("http://127.0.0.1:1", "secret-key".to_owned(), None).unwrap();
    assert!(!format!("{client:?}").contains("secret-key"));
    assert!(!format!("{:?}", Dormouse::new(client)).contains("secret-key"));
}

#[tokio::test]
async fn a_dropped_request_closes_its_connection() {
    use tokio::io::AsyncReadExt as _;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::new(&server, String::new(), None).unwrap();
    let mut asked = Box::pin(client.info());
    let mut connection = tokio::select! {
        accepted = listener.accept() => accepted.unwrap().0,
        answered = &mut asked => panic!("{answered:?}"),
    };
    drop(asked);
    drop(client);
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).await.unwrap();
}

fn event(kind: &str, data: &str) -> String {
    format!("event: {kind}\ndata: {data}\n\n")
}

#[tokio::test]
async fn output_that_cannot_be_decoded_is_an_error_and_not_lost() {
    let wrong = r#"{"offset":0,"data":"not base64!","encoding":"base64","read_at":null}"#;
    let events = event("started", r#"{"process":1,"pid":2}"#) + &event("stdout", wrong);
    let server = Server::new(move |_, _| Answer::Events(events.clone()));
    let sandbox = Dormouse::new(server.client_without_retries()).sandbox("one");
    let error = sandbox.exec("true").await.unwrap_err();
    assert_eq!(error.code(), "unreadable_response", "{error}");
}

#[tokio::test]
async fn a_command_whose_input_cannot_be_written_is_killed() {
    let (killed, changed) = (Mutex::new(false), Condvar::new());
    let server = Server::new(move |_, request| match request.path.rsplit('/').next() {
        Some("exec") => Answer::Events(event("started", r#"{"process":1,"pid":2}"#)),
        Some("stdin") => Answer::problem(500, "failed"),
        Some("kill") => {
            *killed.lock().unwrap() = true;
            changed.notify_all();
            Answer::json(200, r#"{"killed":1}"#)
        }
        // Its output lasts as long as it does.
        _ => {
            drop(changed.wait_while(killed.lock().unwrap(), |killed| !*killed).unwrap());
            Answer::Events(event("exit", r#"{"signal":9,"timed_out":false}"#))
        }
    });
    let sandbox = Dormouse::new(server.client()).sandbox("one");
    let error = sandbox.exec("cat").stdin(vec![0; 1 << 20]).await.unwrap_err();
    assert_eq!((error.code(), error.status()), ("failed", Some(500)), "{error}");
    let paths: Vec<_> = server.take().into_iter().map(|request| request.path).collect();
    assert!(paths.iter().any(|path| path.ends_with("/kill")), "{paths:?}");
}
