use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::world::{KEY, PATIENCE, World};

struct Terminal {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    shown: Vec<u8>,
}

impl Terminal {
    async fn open(world: &World, path: &str) -> Result<Self, u16> {
        let mut request = format!("ws://{}{path}", world.address).into_client_request().unwrap();
        request.headers_mut().insert("x-api-key", KEY.parse().unwrap());
        match tokio_tungstenite::connect_async(request).await {
            Ok((socket, _)) => Ok(Self { socket, shown: Vec::new() }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn send(&mut self, text: &str) {
        self.socket.send(Message::binary(text.as_bytes().to_vec())).await.unwrap();
    }

    async fn say(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next text frame; output before it is collected. `None` when the connection has ended.
    async fn told(&mut self) -> Option<Value> {
        loop {
            match tokio::time::timeout(PATIENCE, self.socket.next()).await.unwrap()? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Binary(bytes)) => self.shown.extend_from_slice(&bytes),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    async fn shows(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.shown).contains(text) {
            match tokio::time::timeout(PATIENCE, self.socket.next()).await.unwrap() {
                Some(Ok(Message::Binary(bytes))) => self.shown.extend_from_slice(&bytes),
                Some(Ok(_)) => {}
                other => panic!("'{text}' was never shown: {other:?}, {}", String::from_utf8_lossy(&self.shown)),
            }
        }
    }
}

#[tokio::test]
async fn a_terminal_carries_bytes_both_ways_and_tells_the_exit() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/pty?cmd=bash&rows=30&cols=100");
    let mut terminal = Terminal::open(&world, &path).await.unwrap();
    let started = terminal.told().await.unwrap();
    assert_eq!(started["type"], "started");
    let process = started["process"].as_u64().unwrap();
    terminal.send("echo hello from inside; echo $TERM\n").await;
    terminal.shows("hello from inside\r\n").await;
    terminal.shows("xterm-256color").await;
    terminal.say(json!({"type": "resize", "rows": 40, "cols": 120})).await;
    let found = format!("/v1/sandboxes/{id}/processes/{process}");
    crate::world::eventually("it has the new size", async || {
        world.get(&found).await["terminal"] == json!({"rows": 40, "cols": 120})
    })
    .await;
    terminal.send("exit 7\n").await;
    assert_eq!(terminal.told().await.unwrap(), json!({"type": "exit", "exit_code": 7, "signal": null}));
    assert_eq!(terminal.told().await, None);
    world.end().await;
}

#[tokio::test]
async fn a_terminal_can_be_left_and_attached_again() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/pty");
    let mut terminal = Terminal::open(&world, &format!("{path}?cmd=counter%20n")).await.unwrap();
    let process = terminal.told().await.unwrap()["process"].as_u64().unwrap();
    terminal.send("\n").await;
    terminal.shows("n 1").await;
    let offset = terminal.shown.len();
    drop(terminal);
    let attach = format!("{path}?attach={process}&offset={offset}&rows=50&cols=50");
    let mut terminal = Terminal::open(&world, &attach).await.unwrap();
    assert_eq!(terminal.told().await.unwrap()["process"], process);
    terminal.send("\n").await;
    terminal.shows("n 2").await;
    assert!(!String::from_utf8_lossy(&terminal.shown).contains("n 1"));
}

#[tokio::test]
async fn what_is_no_terminal_is_refused_before_the_upgrade() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let plain = world.start(&id, json!({"argv": ["sleep", "3600"]})).await;
    for (path, status) in [
        ("/v1/sandboxes/nobody/pty".to_owned(), 404),
        (format!("/v1/sandboxes/{id}/pty?attach=77"), 404),
        (format!("/v1/sandboxes/{id}/pty?attach={plain}"), 409),
        (format!("/v1/sandboxes/{id}/pty?rows=many"), 400),
        (format!("/v1/sandboxes/{id}/pty?user=nobody-here"), 404),
        (format!("/v1/sandboxes/{id}/pty?cmd=true&cwd=relative"), 400),
    ] {
        assert_eq!(Terminal::open(&world, &path).await.err(), Some(status), "{path}");
    }
}

#[tokio::test]
async fn a_frame_that_means_nothing_ends_the_terminal_with_a_reason() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let mut terminal = Terminal::open(&world, &format!("/v1/sandboxes/{id}/pty?cmd=bash")).await.unwrap();
    assert_eq!(terminal.told().await.unwrap()["type"], "started");
    terminal.say(json!({"type": "dance"})).await;
    let told = terminal.told().await.unwrap();
    assert_eq!((&told["type"], &told["code"]), (&json!("error"), &json!("invalid_argument")), "{told}");
    assert_eq!(terminal.told().await, None);
    assert_eq!(world.call("GET", &format!("/v1/sandboxes/{id}"), Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_stop_ends_open_terminals() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let mut terminal = Terminal::open(&world, &format!("/v1/sandboxes/{id}/pty?cmd=bash")).await.unwrap();
    assert_eq!(terminal.told().await.unwrap()["type"], "started");
    world.end().await;
    assert_eq!(terminal.told().await, None);
}
