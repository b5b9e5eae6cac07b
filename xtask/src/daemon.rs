//! A daemon of its own for a demo or a bench: started on a free port with a directory of its own, asked over HTTP as
//! any client would, ended and cleared away whatever happens.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use reqwest::{Client, Method};
use serde_json::{Value, json};

/// A running daemon.
pub struct Daemon {
    child: Child,
    /// Its data directory.
    pub data: PathBuf,
    /// Where it listens.
    pub address: String,
    key: String,
    client: Client,
}

impl Daemon {
    /// Starts one on `data`; its log goes to `log`.
    pub fn start(dorm: &Path, data: &Path, images: &Path, log: &Path, options: &[&str]) -> Result<Self> {
        std::fs::create_dir_all(data).with_context(|| format!("make {}", data.display()))?;
        let log_file = std::fs::File::create(log).with_context(|| format!("write {}", log.display()))?;
        let mut child = Command::new(dorm)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .arg("--images")
            .arg(images)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()
            .with_context(|| format!("start {}", dorm.display()))?;
        let stdout = child.stdout.take().context("the daemon's output")?;
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).context("read the daemon's first line")?;
        let Some(address) = ready.split_whitespace().find(|word| word.starts_with("http://")) else {
            let _ = child.wait();
            let log = std::fs::read_to_string(log).unwrap_or_default();
            bail!("the daemon did not start: {ready}{log}");
        };
        let key = std::fs::read_to_string(data.join("key")).context("read the daemon's key")?;
        let client = Client::builder().no_proxy().build().context("make an HTTP client")?;
        Ok(Self { child, data: data.to_owned(), address: address.to_owned(), key: key.trim().to_owned(), client })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks, and answers the JSON body; an error body becomes an error.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let url = format!("{}/v1{path}", self.address);
        let mut request = self.client.request(method.clone(), &url).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.with_context(|| format!("{method} {path}"))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("{method} {path}"))?;
        if !status.is_success() {
            bail!("{method} {path}: {status}: {text}");
        }
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("{method} {path}: {text}"))
    }

    /// `POST`.
    pub async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    /// Writes a file into a sandbox.
    pub async fn write(&self, id: &str, path: &str, content: Vec<u8>) -> Result<()> {
        let url = format!("{}/v1/sandboxes/{id}/files?path={path}", self.address);
        let answer = self.client.put(url).bearer_auth(&self.key).body(content).send().await?;
        if !answer.status().is_success() {
            bail!("write {path}: {}", answer.text().await?);
        }
        Ok(())
    }

    /// Runs a command in a sandbox to its end; answers its code and output.
    pub async fn exec(&self, id: &str, argv: &[&str]) -> Result<(i64, String)> {
        let answer = self.post(&format!("/sandboxes/{id}/exec"), json!({ "argv": argv })).await?;
        let code = answer["exit_code"].as_i64().ok_or_else(|| anyhow!("no exit code in {answer}"))?;
        Ok((code, answer["stdout"].as_str().unwrap_or_default().to_owned()))
    }

    /// Asks a server in a sandbox, as traffic from outside.
    pub async fn visit(&self, id: &str, port: u16, path: &str) -> Result<String> {
        let request = self
            .client
            .get(format!("{}{path}", self.address))
            .header("X-Dormouse-Sandbox", id)
            .header("X-Dormouse-Port", port.to_string())
            .bearer_auth(&self.key);
        let answer = request.send().await.with_context(|| format!("visit port {port}"))?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            bail!("port {port} of {id}: {status}: {text}");
        }
        Ok(text)
    }

    /// Ends every sandbox, then the daemon, then its directory.
    pub async fn end(mut self) -> Result<()> {
        let list = self.get("/sandboxes?limit=1000").await?;
        for sandbox in list["sandboxes"].as_array().into_iter().flatten() {
            if sandbox["state"] != "terminated" {
                let id = sandbox["id"].as_str().unwrap_or_default();
                self.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
            }
        }
        self.stop()?;
        std::fs::remove_dir_all(&self.data).with_context(|| format!("remove {}", self.data.display()))?;
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let status = Command::new("kill").arg(self.child.id().to_string()).status().context("stop the daemon")?;
        if !status.success() {
            bail!("the daemon could not be told to stop");
        }
        self.child.wait().context("wait for the daemon")?;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Asks `condition` until it holds, at most for `limit`.
pub async fn until<F>(limit: Duration, what: &str, mut condition: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    let end = Instant::now() + limit;
    loop {
        if condition().await? {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("{what}: not within {} s", limit.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
