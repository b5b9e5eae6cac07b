//! One daemon with its door on a loopback port, and a client.

use std::sync::Arc;
use std::time::Duration;

use dorm_engine_fake::FakeHost;
use dorm_http::{Access, ConnectionLimits, Connections, Domains, Keys, Life, Server};
use dorm_ports::SystemClock;
use dorm_service::{Parts, Service, Settings};
use dorm_storage::Storage;
use dorm_store::memory::MemoryStore;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub(crate) const KEY: &str = "e2b_0123456789abcdef0123456789abcdef01234567";
/// Much longer than any operation takes, even on a slow host.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) service: Service,
    client: Client,
    address: std::net::SocketAddr,
    _stop: tokio_util::sync::DropGuard,
    _directory: TempDir,
}

/// An answer of the door.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The status, and the message of an error, whose body must have the form that clients need.
    pub(crate) fn refusal(&self) -> (u16, String) {
        let body = self.json();
        assert_eq!(body["code"], self.status, "{self:?}");
        (self.status, body["message"].as_str().unwrap_or_else(|| panic!("no message: {self:?}")).to_owned())
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        std::fs::create_dir_all(source.join("etc")).unwrap();
        let storage = Storage::open(&directory.path().join("data"), &directory.path().join("images")).unwrap();
        storage.import(&source, Some("base"), |_| {}).await.unwrap();
        let parts = Parts {
            volumes: dorm_service::Volumes::new(directory.path().join("volumes"), dorm_service::Limiting::Never),
            store: Arc::new(MemoryStore::new()),
            engine: FakeHost::new().open(),
            storage,
            clock: Arc::new(SystemClock),
            settings: Settings::default(),
        };
        let (service, _) = Service::open(parts).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let access = Access::new(service.clone(), Keys::new([KEY.to_owned()]), Domains::default());
        let mut server = Server::new(Life::until(stop.clone()));
        dorm_e2b::open(&mut server, access, listener, Connections::new(ConnectionLimits::default()));
        tokio::spawn(server.run(Duration::from_secs(5)));
        let client = Client::builder().no_proxy().build().unwrap();
        Self { service, client, address, _stop: stop.drop_guard(), _directory: directory }
    }

    /// A request without a key.
    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.parse().unwrap();
        self.client.request(method, format!("http://{}{path}", self.address)).timeout(PATIENCE)
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, text: response.text().await.unwrap() }
    }

    /// Sends a request with the key, and with a JSON body unless that is `null`.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        let request = self.request(method, path).header("x-api-key", KEY);
        self.send(if body.is_null() { request } else { request.json(&body) }).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Value::Null).await
    }

    /// Creates a sandbox of the base image; returns its id.
    pub(crate) async fn create(&self, mut body: Value) -> String {
        body["templateID"] = json!("base");
        let created = self.call("POST", "/v2/sandboxes", body).await;
        assert_eq!(created.status, 201, "{created:?}");
        created.json()["sandboxID"].as_str().unwrap().to_owned()
    }

    /// The details of a sandbox.
    pub(crate) async fn describe(&self, id: &str) -> Value {
        let answer = self.get(&format!("/sandboxes/{id}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Sends a request for a port of a sandbox.
    pub(crate) async fn port(&self, id: &str, port: &str, path: &str) -> Answer {
        let request = self.request("GET", path).header("e2b-sandbox-id", id).header("e2b-sandbox-port", port);
        self.send(request).await
    }
}

/// The seconds between two times on the wire.
pub(crate) fn seconds(from: &Value, to: &Value) -> f64 {
    let at = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    #[expect(clippy::cast_precision_loss, reason = "a test compares seconds")]
    let seconds = (at(to) - at(from)) as f64 / 1000.0;
    seconds
}
