//! A daemon for a test: started on a free port with a directory of its own, called over HTTP like
//! any other, and ended and cleared away in any case.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use reqwest::{Client, Method};
use serde_json::{Value, json};

/// How long a daemon may take to be ready on a busy machine.
const START: Duration = Duration::from_secs(180);

/// The number of last lines of the log that are shown when it did not start.
const LINES: usize = 20;

/// The settings of a daemon.
#[derive(Clone, Debug)]
struct Setting {
    dorm: PathBuf,
    data: PathBuf,
    images: PathBuf,
    log: PathBuf,
    options: Vec<String>,
    prepare: Prepare,
}

/// Changes a daemon's command before its process is started.
pub type Prepare = fn(&mut Command);

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    /// `None` if it was not started here, but attached to.
    child: Option<Child>,
    setting: Setting,
    address: String,
    key: String,
    client: Client,
}

/// The response of the daemon.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body; null if there is none.
    pub body: Value,
}

impl Daemon {
    /// Starts a daemon on `data`; its log goes to `log`.
    ///
    /// # Errors
    /// If it does not become ready; the error has the end of its log.
    pub fn start(dorm: &Path, data: &Path, images: &Path, log: &Path, options: &[&str]) -> Result<Self> {
        Self::start_prepared(dorm, data, images, log, options, |_| {})
    }

    /// Like [`Daemon::start`], but calls `prepare` on its command whenever it is started.
    ///
    /// # Errors
    /// If it does not become ready; the error has the end of its log.
    pub fn start_prepared(
        dorm: &Path,
        data: &Path,
        images: &Path,
        log: &Path,
        options: &[&str],
        prepare: Prepare,
    ) -> Result<Self> {
        std::fs::create_dir_all(data).with_context(|| format!("make {}", data.display()))?;
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let (dorm, images, log) = (dorm.to_owned(), images.to_owned(), log.to_owned());
        Self::launch(Setting { dorm, data: data.to_owned(), images, log, options, prepare })
    }

    fn launch(setting: Setting) -> Result<Self> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&setting.log)
            .with_context(|| format!("write {}", setting.log.display()))?;
        let mut command = Command::new(&setting.dorm);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&setting.data)
            .arg("--images")
            .arg(&setting.images)
            .args(&setting.options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        (setting.prepare)(&mut command);
        let mut child = command.spawn().with_context(|| format!("start {}", setting.dorm.display()))?;
        let stdout = child.stdout.take().context("the daemon's output")?;
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut ready = String::new();
            let _ = BufReader::new(stdout).read_line(&mut ready);
            let _ = send.send(ready);
        });
        // A daemon that is not ready in time counts as one that did not start.
        let ready = receive.recv_timeout(START).unwrap_or_default();
        let Some(address) = ready.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned) else {
            let _ = child.kill();
            let _ = child.wait();
            let log = std::fs::read_to_string(&setting.log).unwrap_or_default();
            let log =
                log.lines().rev().take(LINES).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
            bail!("the daemon did not start: {ready}{log}");
        };
        let key = std::fs::read_to_string(setting.data.join("key")).context("read the daemon's key")?;
        let client = Client::builder().no_proxy().build().context("make an HTTP client")?;
        Ok(Self { child: Some(child), address, key: key.trim().to_owned(), client, setting })
    }

    /// Attaches to a running daemon at `address`, possibly in this process, with the API key `key`.
    /// It is only sent requests; its starter must end it.
    pub fn attach(address: &str, key: &str, data: &Path) -> Self {
        let (data, nothing) = (data.to_owned(), PathBuf::new());
        let setting = Setting {
            dorm: nothing.clone(),
            data,
            images: nothing.clone(),
            log: nothing,
            options: Vec::new(),
            prepare: |_| {},
        };
        Self {
            child: None,
            address: address.to_owned(),
            key: key.to_owned(),
            client: Client::builder().no_proxy().build().unwrap_or_default(),
            setting,
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or_else(std::process::id, Child::id)
    }

    /// Its address: `http://127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The key of its API.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The `dorm` binary that it was started from.
    pub fn program(&self) -> &Path {
        &self.setting.dorm
    }

    /// Its directory of images.
    pub fn images(&self) -> &Path {
        &self.setting.images
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.setting.data
    }

    /// Its log so far, with those of all earlier daemons on this directory.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.setting.log).unwrap_or_default()
    }

    /// A request with its key, for everything that the other methods do not cover.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}/v1{path}", self.address)).bearer_auth(&self.key)
    }

    /// Sends a request and returns the answer, whatever its status.
    ///
    /// # Errors
    /// If there is no answer, or its body is not JSON.
    pub async fn try_ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer> {
        let mut request = self.request(method.clone(), path);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.with_context(|| format!("{method} {path}"))?;
        let status = answer.status().as_u16();
        let text = answer.text().await.with_context(|| format!("{method} {path}"))?;
        let body = match text.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).with_context(|| format!("{method} {path}: {text}"))?,
        };
        Ok(Answer { status, body })
    }

    /// Sends a request and returns the JSON body of the answer.
    ///
    /// # Errors
    /// Also if the answer is an error.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let answer = self.try_ask(method.clone(), path, body).await?;
        if answer.status >= 400 {
            bail!("{method} {path}: {}: {}", answer.status, answer.body);
        }
        Ok(answer.body)
    }

    /// Sends a `POST` request.
    ///
    /// # Errors
    /// Also if the answer is an error.
    pub async fn post(&self, path: &str, body: Value) -> Result<Value> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// Sends a `GET` request.
    ///
    /// # Errors
    /// Also if the answer is an error.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.ask(Method::GET, path, None).await
    }

    /// Imports an image from a path of this host. The daemon allows this only over its owner's
    /// socket.
    ///
    /// # Errors
    /// Also if the answer is an error.
    pub async fn import_image(&self, path: &Path, tag: &str) -> Result<Value> {
        // The address of a socket must be a short path.
        let data = std::fs::File::open(self.data()).context("open the data directory")?;
        let socket = format!("/proc/self/fd/{}/api.sock", data.as_raw_fd());
        let client = Client::builder().unix_socket(socket).build().context("make an HTTP client")?;
        let body = json!({ "path": path, "tag": tag });
        let request = client.post("http://localhost/v1/images/import").json(&body);
        let answer = request.send().await.with_context(|| format!("import {}", path.display()))?;
        let (status, body) = (answer.status(), answer.json::<Value>().await?);
        if !status.is_success() {
            bail!("import {}: {status}: {body}", path.display());
        }
        Ok(body)
    }

    /// Creates a sandbox and returns its id.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn create(&self, asked: Value) -> Result<String> {
        let view = self.post("/sandboxes", asked).await?;
        Ok(view["id"].as_str().context("an id")?.to_owned())
    }

    /// Calls an action of a sandbox without arguments, and returns the sandbox.
    ///
    /// # Errors
    /// Also if the answer is an error.
    pub async fn act(&self, id: &str, verb: &str) -> Result<Value> {
        self.post(&format!("/sandboxes/{id}/{verb}"), json!({})).await
    }

    /// Takes a snapshot of `kind` and waits for it.
    ///
    /// # Errors
    /// If it is refused or fails.
    pub async fn checkpoint(&self, id: &str, kind: &str) -> Result<Value> {
        self.post(&format!("/sandboxes/{id}/checkpoint"), json!({ "kind": kind })).await
    }

    /// Returns a sandbox.
    ///
    /// # Errors
    /// Also if there is no such sandbox.
    pub async fn describe(&self, id: &str) -> Result<Value> {
        self.get(&format!("/sandboxes/{id}")).await
    }

    /// Writes a file in a sandbox.
    ///
    /// # Errors
    /// Also if the answer is an error.
    pub async fn write(&self, id: &str, path: &str, content: Vec<u8>) -> Result<()> {
        let request = self.request(Method::PUT, &format!("/sandboxes/{id}/files?path={path}"));
        let answer = request.body(content).send().await?;
        if !answer.status().is_success() {
            bail!("write {path}: {}", answer.text().await?);
        }
        Ok(())
    }

    /// Runs a command in a sandbox to its end; returns its exit code, in the form of a shell, and
    /// its output on both streams.
    ///
    /// # Errors
    /// If it could not be run.
    pub async fn exec(&self, id: &str, argv: &[&str]) -> Result<(i64, String)> {
        let answer = self.post(&format!("/sandboxes/{id}/exec"), json!({ "argv": argv })).await?;
        let signal = answer["signal"].as_i64().map(|signal| 128 + signal);
        let code = answer["exit_code"].as_i64().or(signal).ok_or_else(|| anyhow!("no exit code in {answer}"))?;
        let output = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ok((code, output("stdout") + &output("stderr")))
    }

    /// Sends a request to a server in a sandbox, like traffic from outside, and returns the body.
    ///
    /// # Errors
    /// Also if the answer is an error.
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

    /// Stops the daemon cleanly; its sandboxes continue. Returns its exit code, as [`Daemon::wait`]
    /// does.
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub fn stop(&mut self) -> Result<Option<i32>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        crate::signal(child.id(), rustix::process::Signal::TERM).context("tell the daemon to stop")?;
        Ok(child.wait().context("wait for the daemon")?.code())
    }

    /// Kills the daemon, as a crash would; its sandboxes continue.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else { bail!("a daemon in this process cannot be killed") };
        child.kill().context("kill the daemon")?;
        child.wait().context("wait for the daemon")?;
        Ok(())
    }

    /// Waits until the daemon ends. Returns its exit code; `None` if a signal ended it.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn wait(&mut self) -> Result<Option<i32>> {
        let Some(child) = &mut self.child else { bail!("a daemon in this process cannot be waited for") };
        Ok(child.wait().context("wait for the daemon")?.code())
    }

    /// Starts another daemon on the same directory, after [`Daemon::stop`] or [`Daemon::kill`].
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start_again(&mut self) -> Result<()> {
        *self = Self::launch(self.setting.clone())?;
        Ok(())
    }

    /// Like [`Daemon::start_again`], with other options.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start_again_with(&mut self, options: &[&str]) -> Result<()> {
        self.setting.options = options.iter().map(|option| (*option).to_owned()).collect();
        self.start_again()
    }

    /// Ends every sandbox, then the daemon, and removes its directory.
    ///
    /// # Errors
    /// If any of that fails.
    pub async fn end(mut self) -> Result<()> {
        self.end_sandboxes().await?;
        self.stop()?;
        self.release_images()?;
        std::fs::remove_dir_all(&self.setting.data).with_context(|| format!("remove {}", self.setting.data.display()))
    }

    /// Deletes its references to shared images, as when a data directory is deleted with its
    /// snapshots.
    ///
    /// # Errors
    /// If they cannot be deleted.
    pub fn release_images(&self) -> Result<()> {
        let identity = self.setting.data.join("identity.json");
        let Ok(text) = std::fs::read(&identity) else { return Ok(()) };
        let identity: Value = serde_json::from_slice(&text).with_context(|| format!("read {}", identity.display()))?;
        let Some(id) = identity["id"].as_str() else { return Ok(()) };
        let references = self.setting.images.join("references").join(id);
        match std::fs::remove_dir_all(&references) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", references.display()))
            }
            _ => Ok(()),
        }
    }

    /// Ends every sandbox.
    ///
    /// # Errors
    /// If one does not end.
    pub async fn end_sandboxes(&self) -> Result<()> {
        let list = self.get("/sandboxes?limit=1000").await?;
        for sandbox in list["sandboxes"].as_array().into_iter().flatten() {
            if sandbox["state"] != "terminated" {
                self.act(sandbox["id"].as_str().unwrap_or_default(), "terminate").await?;
            }
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Checks `condition` until it holds, for at most `limit`.
///
/// # Errors
/// If it does not hold in time, or cannot be checked.
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
