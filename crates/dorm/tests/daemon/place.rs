//! A directory for one daemon, which is removed after the test even if the test failed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dorm_testing::{Daemon, Prepare, left_overs, until};
use serde_json::{Value, json};

/// How long any operation may take on a busy host before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The shared images, which the set-up has created.
pub(crate) fn images() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dormouse/images");
    std::env::var_os("DORM_TEST_IMAGES").map_or(target, PathBuf::from)
}

/// A directory that guests can pass through, with a daemon in it.
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

    /// A place whose daemon's process is prepared at every start.
    pub(crate) fn prepared(options: &[&str], prepare: Prepare) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::Builder::new().prefix("dormouse-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let dorm = Path::new(env!("CARGO_BIN_EXE_dorm"));
        let daemon = Daemon::start_prepared(dorm, &data, &images(), &log, options, prepare).unwrap();
        Self { directory, daemon: Some(daemon) }
    }

    /// A place on a file system of its own, which guests can pass through.
    pub(crate) fn on(disk: &Path, images: &Path, log: &Path, options: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::Builder::new().prefix("place-").tempdir_in(disk).unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let dorm = Path::new(env!("CARGO_BIN_EXE_dorm"));
        let daemon = Daemon::start(dorm, &directory.path().join("data"), images, log, options).unwrap();
        Self { directory, daemon: Some(daemon) }
    }

    /// A place whose daemon opens the directories `data` and `images` that `fill` puts there.
    pub(crate) fn holding(options: &[&str], fill: impl FnOnce(&Path)) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::Builder::new().prefix("dormouse-test-").tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        fill(directory.path());
        let [data, images, log] = ["data", "images", "log"].map(|name| directory.path().join(name));
        let dorm = Path::new(env!("CARGO_BIN_EXE_dorm"));
        let daemon = Daemon::start(dorm, &data, &images, &log, options).unwrap();
        Self { directory, daemon: Some(daemon) }
    }

    /// A place with an empty directory of images of its own.
    pub(crate) fn without_images() -> Self {
        Self::with_images(&[])
    }

    /// A place whose guests have the host ids from `base`, even if other users of this host have
    /// them.
    pub(crate) fn with_guest_ids(base: u32) -> Self {
        Self::with_own_images(&[], Some(base))
    }

    /// A place with images of its own: copies of those with these tags.
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
            // Images are never written to, so the copy can share its files with the original.
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

    /// The directory of the test.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Replaces a stopped daemon by another one.
    pub(crate) fn replace(&mut self, daemon: Daemon) {
        self.daemon = Some(daemon);
    }

    pub(crate) fn daemon_mut(&mut self) -> &mut Daemon {
        self.daemon.as_mut().unwrap()
    }

    /// Ends every sandbox and the daemon. Nothing may be left, and the log may have no warnings
    /// except `expected`.
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
    /// After a failure, another daemon ends the sandboxes, and the log is printed.
    fn drop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        eprintln!("the daemon's log:\n{}", daemon.log());
        let clear = std::thread::spawn(move || {
            // Uses a daemon and a client of this thread: those of the test belong to a runtime that
            // no longer runs.
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

/// A program that answers each visit with its pid, a secret that only memory holds, and its number
/// of visits.
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

/// A guest that reports the contents of its memory.
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

    /// Checks that it is the same process with the same memory, one visit later.
    pub(crate) async fn is_whole(&mut self, daemon: &Daemon) {
        let now = ask(daemon, &self.id).await;
        assert_eq!((&now["pid"], &now["secret"]), (&self.pid, &self.secret), "{}", daemon.log());
        self.visits += 1;
        assert_eq!(now["visits"].as_u64(), Some(self.visits));
    }

    /// Another sandbox that started with this memory.
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
