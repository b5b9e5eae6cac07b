//! A place for one daemon: its own directory, cleared away after the test, also when it failed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dorm_testing::{Daemon, Prepare, left_overs, until};
use serde_json::{Value, json};

/// How long anything may take on a busy machine before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The shared images, which the set-up has made.
pub(crate) fn images() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dormouse/images");
    std::env::var_os("DORM_TEST_IMAGES").map_or(target, PathBuf::from)
}

/// A directory that guests can pass through, and a daemon in it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    daemon: Option<Daemon>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(options: &[&str]) -> Self {
        Self::prepared(options, |_| {})
    }

    /// One whose process is prepared whenever it is started.
    pub(crate) fn prepared(options: &[&str], prepare: Prepare) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::Builder::new().prefix("dormouse-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let dorm = Path::new(env!("CARGO_BIN_EXE_dorm"));
        let daemon = Daemon::start_prepared(dorm, &data, &images(), &log, options, prepare).unwrap();
        Self { directory, daemon: Some(daemon) }
    }

    /// One on a file system of its own, which guests can pass through.
    pub(crate) fn on(disk: &Path, images: &Path, log: &Path, options: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::Builder::new().prefix("place-").tempdir_in(disk).unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let dorm = Path::new(env!("CARGO_BIN_EXE_dorm"));
        let daemon = Daemon::start(dorm, &directory.path().join("data"), images, log, options).unwrap();
        Self { directory, daemon: Some(daemon) }
    }

    /// One with images of its own, of which there are none yet.
    pub(crate) fn without_images() -> Self {
        Self::with_images(&[])
    }

    /// The same, whose guests have the host ids from `base`, whoever else has them on this host.
    pub(crate) fn with_guest_ids(base: u32) -> Self {
        Self::with_own_images(&[], Some(base))
    }

    /// One with images of its own: copies of those that have these tags.
    pub(crate) fn with_images(tags: &[&str]) -> Self {
        Self::with_own_images(tags, None)
    }

    fn with_own_images(tags: &[&str], guest_ids: Option<u32>) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::Builder::new().prefix("dormouse-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let dorm = Path::new(env!("CARGO_BIN_EXE_dorm"));
        let own = directory.path().join("images");
        for tag in tags {
            let digest = std::fs::read_to_string(images().join("tags").join(tag));
            let digest = digest.unwrap_or_else(|_| panic!("there is no image '{tag}': run `cargo xtask setup`"));
            std::fs::create_dir_all(own.join("tags")).unwrap();
            // Nothing is ever written into an image: its files may be those of the other.
            let mut copy = std::process::Command::new("cp");
            copy.arg("-al").args([images().join(digest.trim_end()), own.clone()]);
            assert!(copy.status().unwrap().success(), "copy image '{tag}'");
            std::fs::write(own.join("tags").join(tag), digest).unwrap();
        }
        if let Some(base) = guest_ids {
            std::fs::create_dir(&data).unwrap();
            std::fs::write(data.join("guest-ids"), format!("{base}\n")).unwrap();
        }
        let daemon = Daemon::start(dorm, &data, &own, &log, &[]).unwrap();
        Self { directory, daemon: Some(daemon) }
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// Where everything of the test is.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Puts another daemon in the place of one that was stopped.
    pub(crate) fn replace(&mut self, daemon: Daemon) {
        self.daemon = Some(daemon);
    }

    pub(crate) fn daemon_mut(&mut self) -> &mut Daemon {
        self.daemon.as_mut().unwrap()
    }

    /// Ends every sandbox and the daemon; nothing may be left, and the log may hold no warning but `expected`.
    pub(crate) async fn end(mut self, expected: &[&str]) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.end_sandboxes().await.unwrap();
        assert_eq!(daemon.stop().unwrap(), Some(0), "{}", daemon.log());
        daemon.release_images().unwrap();
        let log = daemon.log();
        let unexpected: Vec<_> = log
            .lines()
            .filter(|line| line.contains(" WARN ") || line.contains(" ERROR "))
            .filter(|line| !expected.iter().any(|word| line.contains(word)))
            .collect();
        assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
        let directory = self.directory.path().to_owned();
        let gone = until(PATIENCE, "nothing is left", || async { Ok(left_overs(&directory).is_empty()) }).await;
        assert!(gone.is_ok(), "{:#?}", left_overs(self.directory.path()));
    }
}

impl Drop for Place {
    /// After a failure: the sandboxes are ended by a last daemon, and the log is shown.
    fn drop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        eprintln!("the daemon's log:\n{}", daemon.log());
        let clear = std::thread::spawn(move || {
            // A daemon and a client of this thread's own: those of the test belong to a runtime that stands still.
            daemon.kill()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                daemon.start_again()?;
                tokio::time::timeout(PATIENCE, daemon.end_sandboxes()).await??;
                daemon.stop()?;
                daemon.release_images()
            })
        });
        let cleared: Option<anyhow::Result<()>> = clear.join().ok();
        if !matches!(cleared, Some(Ok(()))) {
            eprintln!("something is left of {}: {cleared:?}", self.directory.path().display());
        }
    }
}

/// A program that answers each visit with its pid, a secret that only memory holds, and how often it was visited.
const COUNTER: &str = r#"
import http.server, json, os, secrets
secret, visits = secrets.token_hex(8), 0
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global visits
        visits += 1
        body = json.dumps({"pid": os.getpid(), "secret": secret, "visits": visits}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *arguments):
        pass
http.server.HTTPServer(("0.0.0.0", 8000), Answer).serve_forever()
"#;

/// A guest whose memory can be asked for.
pub(crate) struct Counter {
    pub(crate) id: String,
    pid: Value,
    secret: Value,
    visits: u64,
}

impl Counter {
    pub(crate) async fn create(daemon: &Daemon, asked: Value) -> Self {
        let id = daemon.create(asked).await.unwrap();
        daemon.write(&id, "/root/counter.py", COUNTER.as_bytes().to_vec()).await.unwrap();
        let process = json!({ "argv": ["python3", "/root/counter.py"] });
        daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
        let answers = || async { Ok(daemon.visit(&id, 8000, "/").await.is_ok()) };
        until(PATIENCE, "the counter answers", answers).await.unwrap();
        let first = ask(daemon, &id).await;
        let visits = first["visits"].as_u64().unwrap();
        Self { pid: first["pid"].clone(), secret: first["secret"].clone(), visits, id }
    }

    /// The same process with the same memory, one visit later.
    pub(crate) async fn is_whole(&mut self, daemon: &Daemon) {
        let now = ask(daemon, &self.id).await;
        assert_eq!((&now["pid"], &now["secret"]), (&self.pid, &self.secret), "{}", daemon.log());
        self.visits += 1;
        assert_eq!(now["visits"].as_u64(), Some(self.visits));
    }

    /// Another sandbox that began with this memory.
    pub(crate) fn child(&self, id: &str) -> Self {
        Self { id: id.to_owned(), pid: self.pid.clone(), secret: self.secret.clone(), visits: self.visits }
    }

    pub(crate) fn visits(&self) -> u64 {
        self.visits
    }

    pub(crate) fn back_to(&mut self, visits: u64) {
        self.visits = visits;
    }
}

async fn ask(daemon: &Daemon, id: &str) -> Value {
    let text = daemon.visit(id, 8000, "/").await.unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(crate) async fn becomes(daemon: &Daemon, id: &str, state: &str) -> Value {
    let is = || async { Ok(daemon.describe(id).await?["state"] == state) };
    until(PATIENCE, state, is).await.unwrap();
    daemon.describe(id).await.unwrap()
}
