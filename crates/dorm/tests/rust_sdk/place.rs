//! A daemon for one area, in a directory of its own that is removed even after a failure.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dorm_client::Dormouse;
use dorm_testing::{Daemon, left_overs, until};

/// How long anything may take on a busy host before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The shared images, which the set-up has created.
pub(crate) fn images() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/dormouse/images");
    std::env::var_os("DORM_TEST_IMAGES").map_or(target, PathBuf::from)
}

/// A directory that guests can pass through.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::Builder::new().prefix("dormouse-test-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// A daemon and its directory.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    daemon: Option<Daemon>,
}

impl Place {
    /// A daemon with the shared images, which it does not change.
    pub(crate) fn new() -> Self {
        Self::in_directory(directory(), &images())
    }

    /// A daemon with images of its own, which it may change: a copy of `base`.
    pub(crate) fn with_own_images() -> Self {
        let directory = directory();
        let own = directory.path().join("images");
        let digest = std::fs::read_to_string(images().join("tags/base"));
        let digest = digest.expect("there is no image 'base': run `cargo xtask setup`");
        std::fs::create_dir_all(own.join("tags")).unwrap();
        // Images are never written to, so the copy can share its files with the original.
        let mut copy = Command::new("cp");
        copy.arg("-al").args([images().join(digest.trim_end()), own.clone()]);
        assert!(copy.status().unwrap().success());
        std::fs::write(own.join("tags/base"), digest).unwrap();
        Self::in_directory(directory, &own)
    }

    fn in_directory(directory: tempfile::TempDir, images: &Path) -> Self {
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let dorm = Path::new(env!("CARGO_BIN_EXE_dorm"));
        let daemon = Daemon::start(dorm, &data, images, &log, &[]).unwrap();
        Self { directory, daemon: Some(daemon) }
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// The daemon, as a program with its key uses it.
    pub(crate) fn dormouse(&self) -> Dormouse {
        Dormouse::at(self.daemon().address(), Some(self.daemon().key()), None).unwrap()
    }

    /// Ends every sandbox and the daemon. Nothing may be left, and the log may have no warnings.
    pub(crate) async fn end(mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.end_sandboxes().await.unwrap();
        assert_eq!(daemon.stop().unwrap(), Some(0), "{}", daemon.log());
        daemon.release_images().unwrap();
        let log = daemon.log();
        let is_warning = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        let unexpected: Vec<_> = log.lines().filter(is_warning).collect();
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
        // On a thread of its own: the runtime of the test may be the reason.
        let clear = std::thread::spawn(move || -> anyhow::Result<()> {
            daemon.kill()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                daemon.start_again()?;
                tokio::time::timeout(PATIENCE, daemon.end_sandboxes()).await??;
                daemon.stop()?;
                daemon.release_images()
            })
        });
        let cleared = clear.join().ok();
        if !matches!(cleared, Some(Ok(()))) {
            eprintln!("something is left of {}: {cleared:?}", self.directory.path().display());
        }
    }
}
