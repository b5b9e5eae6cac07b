//! One daemon with its API on a loopback port, and a client.

use std::sync::Arc;
use std::time::Duration;

use dorm_engine_fake::FakeHost;
use dorm_http::{Access, ConnectionLimits, Connections, Domains, Keys, Life, Server};
use dorm_ports::SystemClock;
use dorm_service::{Parts, Service, Settings};
use dorm_storage::Storage;
use dorm_store::memory::MemoryStore;
use futures_util::StreamExt;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::schema::Exchange;

pub(crate) const KEY: &str = "a-key-of-the-tests";
/// Much longer than any operation takes, even on a slow host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) host: FakeHost,
    pub(crate) service: Service,
    pub(crate) store: MemoryStore,
    pub(crate) client: Client,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) server: JoinHandle<()>,
    pub(crate) directory: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_grace(Duration::from_secs(5)).await
    }

    pub(crate) async fn with_grace(grace: Duration) -> Self {
        Self::with(grace, local(), ConnectionLimits::default()).await
    }

    pub(crate) async fn with_settings(settings: Settings) -> Self {
        Self::with(Duration::from_secs(5), settings, ConnectionLimits::default()).await
    }

    pub(crate) async fn with_limits(limits: ConnectionLimits) -> Self {
        Self::with(Duration::from_secs(5), local(), limits).await
    }

    async fn with(grace: Duration, settings: Settings, limits: ConnectionLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        std::fs::create_dir_all(source.join("etc")).unwrap();
        std::fs::write(source.join("etc/hello"), "hello").unwrap();
        let storage = Storage::open(&directory.path().join("data"), &directory.path().join("images")).unwrap();
        storage.import(&source, Some("base"), |_| {}).await.unwrap();
        let host = FakeHost::new();
        let store = MemoryStore::new();
        let parts = Parts {
            volumes: dorm_service::Volumes::new(directory.path().join("volumes"), dorm_service::Limiting::Never),
            store: Arc::new(store.clone()),
            engine: host.open(),
            storage,
            clock: Arc::new(SystemClock),
            settings,
        };
        let (service, _) = Service::open(parts).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let owner = UnixListener::bind(directory.path().join("api.sock")).unwrap();
        let access = Access::new(service.clone(), Keys::new([KEY.to_owned()]), Domains::default());
        let mut server = Server::new(Life::until(stop.clone()));
        server.life().tasks.spawn(dorm_api::send_webhooks(service.clone(), stop.clone()));
        dorm_api::open(&mut server, access, (listener, owner), Connections::new(limits));
        let server = tokio::spawn(server.run(grace));
        let headers = HeaderMap::from_iter([("x-api-key".parse().unwrap(), HeaderValue::from_static(KEY))]);
        let client = Client::builder().default_headers(headers).no_proxy().build().unwrap();
        Self { host, service, store, client, address, stop, server, directory }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.parse().unwrap();
        self.client.request(method, format!("http://{}{path}", self.address)).timeout(PATIENCE)
    }

    /// A request of the daemon's owner, over the socket and without a key.
    pub(crate) fn owners(&self, method: &str, path: &str) -> RequestBuilder {
        let client = Client::builder().unix_socket(self.directory.path().join("api.sock")).build().unwrap();
        client.request(method.parse().unwrap(), format!("http://localhost{path}")).timeout(PATIENCE)
    }

    /// Sends a request with a JSON body, or without a body for `null`; returns status and JSON,
    /// which must be as the OpenAPI document describes them.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let mut request = self.request(method, path);
        if !body.is_null() {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let media_type = response.headers().get("content-type").map_or("", |value| value.to_str().unwrap()).to_owned();
        let (status, received) = read(response).await;
        Exchange { method, path, sent: &body, status, media_type: &media_type, received: &received }.check();
        (status, received)
    }

    /// Sends a request that must succeed.
    pub(crate) async fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ok("GET", path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.ok("POST", path, body).await
    }

    /// Creates a running sandbox; returns its id.
    pub(crate) async fn sandbox(&self) -> String {
        self.create(json!({"image": "base"})).await
    }

    pub(crate) async fn named(&self, name: &str) -> String {
        self.create(json!({"image": "base", "name": name})).await
    }

    pub(crate) async fn create(&self, body: Value) -> String {
        self.post("/v1/sandboxes", body).await["id"].as_str().unwrap().to_owned()
    }

    /// Starts a process; returns its handle.
    pub(crate) async fn start(&self, id: &str, body: Value) -> u64 {
        self.post(&format!("/v1/sandboxes/{id}/processes"), body).await["process"].as_u64().unwrap()
    }

    pub(crate) async fn events(&self, path: &str) -> Events {
        self.events_of(self.request("GET", path)).await
    }

    pub(crate) async fn events_of(&self, request: RequestBuilder) -> Events {
        let response = request.header(ACCEPT, "text/event-stream").send().await.unwrap();
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events { response: Box::pin(response.bytes_stream()), text: Vec::new() }
    }

    /// Stops the server, which must end without an error.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.server).await.unwrap().unwrap();
    }
}

/// Settings that permit webhooks to receivers in this process.
fn local() -> Settings {
    let loopback = ["127.0.0.0/8".parse().unwrap()];
    Settings { webhooks: dorm_ports::Destinations::public_and(loopback), ..Settings::default() }
}

pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let value = match text.is_empty() {
        true => Value::Null,
        false => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    };
    (status, value)
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never came true: {what}"));
}

/// A stream of server-sent events.
pub(crate) struct Events {
    response: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    text: Vec<u8>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sse {
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl Events {
    /// The next event; `None` when the stream has ended for any reason.
    pub(crate) async fn next(&mut self) -> Option<Sse> {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("an event in time")
    }

    /// All events until the stream ends.
    pub(crate) async fn rest(mut self) -> Vec<Sse> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    async fn read(&mut self) -> Option<Sse> {
        loop {
            if let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                let block = String::from_utf8(block).unwrap();
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
                };
                // An event without data is only a keep-alive.
                if let Some(data) = field("data") {
                    let data = serde_json::from_str(&data).unwrap();
                    return Some(Sse { kind: field("event").unwrap(), id: field("id"), data });
                }
                continue;
            }
            self.text.extend_from_slice(&self.response.next().await?.ok()?);
        }
    }
}
