use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::routing::{any, get};
use futures_util::{SinkExt, StreamExt, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite;
use tokio_util::sync::CancellationToken;

use super::*;

const ID: &str = "abcdefghij2345678901";

#[test]
fn a_host_names_a_port_of_a_sandbox_or_nothing() {
    let domains = Domains::with(["sandboxes.example.org".to_owned()]).unwrap();
    let found = |port| Some(Wanted { sandbox: Named::Id(ID.parse().unwrap()), port });
    let named = |name: &str, port| Some(Wanted { sandbox: Named::Name(name.parse().unwrap()), port });
    for (host, target) in [
        (format!("8080-{ID}.localhost:7070"), found(8080)),
        (format!("1-{ID}.sandboxes.example.org"), found(1)),
        (format!("8080-{}.localhost", ID.to_uppercase()), found(8080)),
        (format!("1-{ID}.evil.example"), None),
        (format!("1-{ID}.a.localhost"), None),
        (format!("0-{ID}.localhost"), None),
        (format!("65536-{ID}.localhost"), None),
        (format!("8080-{ID}"), None),
        (format!("{ID}.localhost"), None),
        ("8080-web.localhost".to_owned(), named("web", 8080)),
        ("8080-my-web.localhost".to_owned(), named("my-web", 8080)),
        ("8080-1web.localhost".to_owned(), None),
        ("localhost:7070".to_owned(), None),
        ("127.0.0.1:7070".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(wanted_by_host(&domains, &host), target, "{host}");
    }
}

#[test]
fn what_concerns_one_connection_is_not_passed_on() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "close, X-Private"),
        ("x-private", "1"),
        ("keep-alive", "1"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("accept", "*/*"),
        ("authorization", "Bearer theirs"),
    ] {
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value));
    }
    strip(&mut headers);
    let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["accept", "authorization"]);
}

/// A use, counted until it is dropped.
struct Use(Arc<AtomicUsize>);

impl Use {
    fn begin(uses: &Arc<AtomicUsize>) -> Self {
        uses.fetch_add(1, Ordering::SeqCst);
        Self(uses.clone())
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A gateway that forwards every request to a program on `inside`, which stands for a port of a
/// sandbox.
async fn gateway(inside: std::net::SocketAddr, uses: Arc<AtomicUsize>) -> (std::net::SocketAddr, Life) {
    gateway_that_tells(inside, uses, None).await
}

async fn gateway_that_tells(
    inside: std::net::SocketAddr,
    uses: Arc<AtomicUsize>,
    told: Option<&'static str>,
) -> (std::net::SocketAddr, Life) {
    let life = Life::until(CancellationToken::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let of_server = life.clone();
    let pass_on = move |mut request: Request| {
        let (life, in_use) = (life.clone(), Use::begin(&uses));
        async move {
            let target = Target { sandbox: ID.parse().unwrap(), port: 1 };
            let stream = TcpStream::connect(inside).await.unwrap();
            prepare(&mut request, told).unwrap();
            exchange(&life, &target, stream, in_use, request).await.unwrap()
        }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(pass_on))).await.unwrap() });
    (address, of_server)
}

async fn program(router: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let echo = Router::new().route("/echo", any(|request: Request| async { request.into_body() }));
    let (address, _) = gateway(program(echo).await, Arc::default()).await;
    // The second chunk is sent only after the first has come back: no hop may wait for the whole
    // body.
    let (send, chunks) = tokio::sync::mpsc::channel::<&'static str>(1);
    let body = stream::unfold(chunks, |mut chunks| async {
        let chunk = chunks.recv().await?;
        Some((Ok::<_, io::Error>(bytes::Bytes::from(chunk)), chunks))
    });
    send.send("first").await.unwrap();
    let request = reqwest::Client::new().post(format!("http://{address}/echo")).body(reqwest::Body::wrap_stream(body));
    let mut answer = request.send().await.unwrap().bytes_stream();
    assert_eq!(answer.next().await.unwrap().unwrap(), "first");
    send.send("second").await.unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), "second");
    drop(send);
    assert!(answer.next().await.is_none());
}

#[tokio::test]
async fn a_program_that_answers_with_a_long_head_is_not_listened_to() {
    let life = Life::until(CancellationToken::new());
    for (values, is_passed_on) in [(1, true), (10, false)] {
        let (outside, mut inside) = tokio::io::duplex(64 << 10);
        let program = tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                inside.read_buf(&mut request).await.unwrap();
            }
            let head = (0..values).map(|number| format!("x-{number}: {}\r\n", "a".repeat(40 << 10)));
            let head: String = head.collect();
            let answer = format!("HTTP/1.1 200 OK\r\n{head}content-length: 0\r\n\r\n");
            // The gateway may close the connection.
            drop(inside.write_all(answer.as_bytes()).await);
            inside
        });
        let target = Target { sandbox: ID.parse().unwrap(), port: 1 };
        let request = Request::get("/").header("host", "a").body(Body::empty()).unwrap();
        let answer = exchange(&life, &target, outside, (), request).await;
        match answer {
            Ok(answer) => assert!(is_passed_on && answer.headers()["x-0"].len() == 40 << 10),
            Err(error) => assert!(!is_passed_on && matches!(error, PortError::Silent(_)), "{error}"),
        }
        program.await.unwrap();
    }
}

#[tokio::test]
async fn a_websocket_goes_through_and_keeps_the_sandbox_in_use() {
    let echo = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) = socket.next().await {
                socket.send(message).await.unwrap();
            }
        })
    };
    let uses = Arc::<AtomicUsize>::default();
    let (address, life) = gateway(program(Router::new().route("/ws", get(echo))).await, uses.clone()).await;
    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{address}/ws")).await.unwrap();
    let large = vec![7; 300_000];
    for message in [tungstenite::Message::text("hello"), tungstenite::Message::binary(large)] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    assert_eq!(uses.load(Ordering::SeqCst), 1);
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    drop(socket);
    let ended = async {
        while uses.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.unwrap();
    assert!(!life.cut.is_cancelled());
}

#[tokio::test]
async fn a_cut_ends_tunnels() {
    let echo = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move { while let Some(Ok(_)) = socket.next().await {} })
    };
    let (address, life) = gateway(program(Router::new().route("/ws", get(echo))).await, Arc::default()).await;
    let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{address}/ws")).await.unwrap();
    life.cut.cancel();
    life.tasks.close();
    life.tasks.wait().await;
    assert!(!matches!(socket.next().await, Some(Ok(_))));
}

#[tokio::test]
async fn a_program_sees_where_a_request_came_from_and_its_own_host() {
    let tell = Router::new().fallback(any(|headers: HeaderMap, uri: Uri| async move {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        format!("{uri}\n{}", lines.join("\n"))
    }));
    let inside = program(tell).await;
    for (told, host) in [(None, format!("1-{ID}.localhost")), (Some("localhost:3000"), "localhost:3000".to_owned())] {
        let (address, _) = gateway_that_tells(inside, Arc::default(), told).await;
        let request = reqwest::Client::new()
            .get(format!("http://{address}/a%20b?c=d"))
            .header("host", format!("1-{ID}.localhost"))
            .header("x-forwarded-for", "203.0.113.1")
            .header("x-dormouse-port", "1")
            .header("cookie", "a=b");
        let seen = request.send().await.unwrap().text().await.unwrap();
        let expected = format!(
            "/a%20b?c=d\naccept: */*\ncookie: a=b\nhost: {host}\n\
                            x-forwarded-host: 1-{ID}.localhost\nx-forwarded-proto: http"
        );
        assert_eq!(seen, expected);
    }
}
