//! The requests of a client of E2B, without its own time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dorm_testing::Daemon;
use futures_util::StreamExt as _;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::AGAIN;

/// The port of `envd`, and that of the code interpreter.
const ENVD: u16 = 49_983;
const INTERPRETER: u16 = 49_999;
/// How long a port may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of the door of a daemon.
pub(super) struct E2bClient {
    http: Client,
    url: String,
    key: String,
}

/// A sandbox, as its client knows it.
pub(super) struct Place {
    pub(super) id: String,
    token: String,
}

impl E2bClient {
    /// A client of the door that the daemon names.
    pub(super) async fn of(daemon: &Daemon) -> Result<Self> {
        let info = daemon.get("/info").await?;
        let door = info["doors"]["e2b"].as_str().context("the daemon has no door for clients of E2B")?;
        let http = Client::builder().no_proxy().build().context("make an HTTP client")?;
        Ok(Self { http, url: format!("http://{door}"), key: daemon.key().to_owned() })
    }

    /// Sends a request of the control API.
    pub(super) async fn control(&self, method: Method, path: &str, body: Value) -> Result<Value> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).header("x-api-key", &self.key);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.with_context(|| path.to_owned())?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{path}: {status} {text}");
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }

    pub(super) async fn create(&self, body: Value) -> Result<Place> {
        let made = self.control(Method::POST, "/v2/sandboxes", body).await?;
        let text = |key: &str| made[key].as_str().unwrap_or_default().to_owned();
        Ok(Place { id: text("sandboxID"), token: text("envdAccessToken") })
    }

    fn inside(&self, place: &Place, port: u16, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let request = request.header("e2b-sandbox-id", &place.id).header("e2b-sandbox-port", port);
        request.header("x-access-token", &place.token)
    }

    /// Starts a command; returns the stream of its events.
    pub(super) async fn stream(&self, place: &Place, command: &str) -> Result<Response> {
        let process = json!({ "cmd": "/bin/bash", "args": ["-l", "-c", command] });
        let message = serde_json::to_vec(&json!({ "process": process, "stdin": false }))?;
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len())?.to_be_bytes());
        frame.extend(message);
        let request = self.inside(place, ENVD, Method::POST, "/process.Process/Start");
        let request =
            request.header("content-type", "application/connect+json").header("connect-protocol-version", "1");
        Ok(request.body(frame).send().await?.error_for_status()?)
    }

    /// Runs a command to its end, which must be a success.
    pub(super) async fn runs(&self, place: &Place, command: &str) -> Result<()> {
        let text = self.stream(place, command).await?.bytes().await?;
        let text = String::from_utf8_lossy(&text);
        ensure!(text.contains("exit status 0"), "{command}: {text}");
        Ok(())
    }

    /// Starts a command that continues.
    pub(super) async fn starts(&self, place: &Place, command: &str) -> Result<()> {
        let mut events = self.stream(place, command).await?.bytes_stream();
        events.next().await.context("no event")??;
        Ok(())
    }

    /// Sends a request to a port until a program answers.
    pub(super) async fn visit(&self, place: &Place, port: u16) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let answer = self.inside(place, port, Method::GET, "/").send().await?;
            if answer.status().is_success() {
                return Ok(());
            }
            tokio::time::sleep(AGAIN).await;
        }
        bail!("port {port} of {} did not answer", place.id)
    }

    pub(super) async fn upload(&self, place: &Place, path: &str, content: bytes::Bytes) -> Result<()> {
        let request = self.inside(place, ENVD, Method::POST, &format!("/files?path={path}"));
        let request = request.header("content-type", "application/octet-stream");
        request.body(content).send().await?.error_for_status()?;
        Ok(())
    }

    /// Downloads a file; returns its length.
    pub(super) async fn download(&self, place: &Place, path: &str) -> Result<usize> {
        let request = self.inside(place, ENVD, Method::GET, &format!("/files?path={path}"));
        drain(request.send().await?.error_for_status()?).await
    }

    /// Runs code in the default context.
    pub(super) async fn run_code(&self, place: &Place, code: &str) -> Result<()> {
        let request = self.inside(place, INTERPRETER, Method::POST, "/execute").json(&json!({ "code": code }));
        let text = request.send().await?.error_for_status()?.text().await?;
        ensure!(text.contains("end_of_execution") && !text.contains("\"error\""), "{code}: {text}");
        Ok(())
    }
}

/// Reads an answer to its end; returns its length.
pub(super) async fn drain(answer: Response) -> Result<usize> {
    let mut length = 0;
    let mut pieces = answer.bytes_stream();
    while let Some(piece) = pieces.next().await {
        length += piece?.len();
    }
    Ok(length)
}
