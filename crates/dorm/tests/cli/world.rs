//! A daemon in this process, and the program that calls it.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use dorm_engine_fake::FakeHost;
use dorm_http::{Access, ConnectionLimits, Connections, Domains, Keys, Life, Server};
use dorm_ports::SystemClock;
use dorm_service::{Parts, Service, Settings};
use dorm_storage::Storage;
use dorm_store::memory::MemoryStore;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, UnixListener};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// Much longer than any operation takes, even on a slow host.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const KEY: &str = "a-key-of-the-tests";

/// A daemon whose address and key are in a data directory.
pub(crate) struct World {
    pub(crate) directory: TempDir,
    pub(crate) address: std::net::SocketAddr,
    stop: CancellationToken,
    pub(crate) host: FakeHost,
}

/// The result of a run of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let root = directory.path().join("root");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/hello"), "hello").unwrap();
        let storage = Storage::open(&data, &directory.path().join("images")).unwrap();
        storage.import(&root, Some("base"), |_| {}).await.unwrap();
        let host = FakeHost::new();
        let parts = Parts {
            volumes: dorm_service::Volumes::new(data.join("volumes"), dorm_service::Limiting::Never),
            store: Arc::new(MemoryStore::new()),
            engine: host.open(),
            storage,
            clock: Arc::new(SystemClock),
            settings,
        };
        let (service, _) = Service::open(parts).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let owner = UnixListener::bind(data.join("api.sock")).unwrap();
        let mut server = Server::new(Life::until(stop.clone()));
        server.life().tasks.spawn(dorm_api::send_webhooks(service.clone(), stop.clone()));
        let access = Access::new(service, Keys::new([KEY.to_owned()]), Domains::default());
        let connections = Connections::new(ConnectionLimits::default());
        dorm_api::open(&mut server, access, (listener, owner), connections);
        tokio::spawn(server.run(Duration::from_secs(5)));
        std::fs::write(data.join("address"), format!("http://{address}\n")).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let key = options.write(true).create_new(true).mode(0o600).open(data.join("key")).unwrap();
        std::io::Write::write_all(&mut &key, KEY.as_bytes()).unwrap();
        Self { directory, address, stop, host }
    }

    /// A path for a file of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The program with these arguments. It finds the daemon by its data directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(arguments);
        command.env("DORM_DATA", self.directory.path().join("data")).current_dir(self.directory.path());
        command
    }

    pub(crate) async fn dorm(&self, arguments: &[&str]) -> Ran {
        self.dorm_with(arguments, b"").await
    }

    /// Runs the program with this on its standard input.
    pub(crate) async fn dorm_with(&self, arguments: &[&str], input: &[u8]) -> Ran {
        end(self.command(arguments), input).await
    }

    /// Runs the program, which must succeed and print JSON; returns that.
    pub(crate) async fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.dorm(arguments).await;
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {ran:?}"))
    }

    /// Runs the program, which must succeed and print a table; returns its cells by rows.
    pub(crate) async fn table(&self, arguments: &[&str]) -> Vec<Vec<String>> {
        let ran = self.dorm(arguments).await;
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.rows()
    }

    /// Creates a running sandbox with this name; returns its id.
    pub(crate) async fn named(&self, name: &str) -> String {
        let sandbox = self.json(&["sbx", "create", name, "-o", "json"]).await;
        assert_eq!(sandbox["state"], "running", "{sandbox}");
        sandbox["id"].as_str().unwrap().to_owned()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// The cells of a table, which are separated by two or more spaces.
    pub(crate) fn rows(&self) -> Vec<Vec<String>> {
        let cells =
            |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
        self.text().lines().map(cells).collect()
    }

    /// Checks that the program failed with this code, printed no data, and printed exactly this
    /// error.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, said: &str) {
        assert_eq!((self.code, self.text().as_str(), self.stderr.as_str()), (code, "", said), "{self:?}");
    }

    /// Checks that the program failed with this code and that its error contains this.
    #[track_caller]
    pub(crate) fn failed(&self, code: i32, said: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(said), "{said} is not in {self:?}");
    }
}

/// The program with these arguments and no environment.
pub(crate) fn bare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
    command.args(arguments).env_clear().kill_on_drop(true);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub(crate) async fn end(mut command: Command, input: &[u8]) -> Ran {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = tokio::spawn(async move {
        // The program need not read all of it.
        let _ = stdin.write_all(&input).await;
    });
    let ran = wait(child).await;
    feeder.abort();
    ran
}

/// Waits for the end of the program.
pub(crate) async fn wait(child: Child) -> Ran {
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.expect("it never ended").unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr }
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never came true: {what}"));
}

/// Bytes that are not text and do not repeat.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes()[..5.min(length - bytes.len())]);
    }
    bytes
}

/// Writes a file of the test.
pub(crate) fn write(path: &Path, contents: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, contents).unwrap();
}
