//! The peer: bare `runsc` commands on the same root file system, as a user would run them by hand.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dorm_pool::GuestIds;
use serde_json::json;

use super::{TOUCH, millis};

pub(super) struct Peer {
    directory: PathBuf,
}

impl Peer {
    pub(super) fn new(directory: &Path, rootfs: &Path) -> Result<Self> {
        let bundle = directory.join("bundle");
        std::fs::create_dir_all(&bundle).context("make the peer's bundle")?;
        std::fs::create_dir_all(directory.join("overlay")).context("make the peer's overlay")?;
        let ids = GuestIds::DEFAULT;
        let mapping = json!([{ "containerID": 0, "hostID": ids.base(), "size": GuestIds::COUNT }]);
        let config = json!({
            "ociVersion": "1.0.0",
            "process": {
                "user": { "uid": 0, "gid": 0 }, "args": ["sleep", "100000"], "cwd": "/",
                "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"],
            },
            "root": { "path": rootfs, "readonly": false },
            "hostname": "peer",
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs" },
                { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"] },
            ],
            "linux": {
                "uidMappings": mapping, "gidMappings": mapping,
                "namespaces": [
                    { "type": "pid" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                    { "type": "network" }, { "type": "user" },
                ],
            },
        });
        std::fs::write(bundle.join("config.json"), config.to_string()).context("write the peer's bundle")?;
        let owner = Some(ids.base());
        std::os::unix::fs::chown(directory.join("overlay"), owner, owner).context("give the overlay to the guest")?;
        Ok(Self { directory: directory.to_owned() })
    }

    fn command(&self) -> Result<Command> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .context("open the peer's log")?;
        let mut command = Command::new("runsc");
        command
            .arg(format!("--root={}", self.directory.join("root").display()))
            .args(["--network=none", "--ignore-cgroups"])
            .arg(format!("--overlay2=root:dir={}", self.directory.join("overlay").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("open the peer's log")?)
            .stderr(log);
        Ok(command)
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let status = self.command()?.args(arguments).status().context("run runsc")?;
        if !status.success() {
            let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            bail!("runsc {}: {status}: {log}", arguments.join(" "));
        }
        Ok(())
    }

    fn bundle(&self) -> String {
        self.directory.join("bundle").display().to_string()
    }

    pub(super) fn first_exec(&self, round: usize) -> Result<(String, f64)> {
        let id = format!("peer{round}");
        let began = Instant::now();
        self.run(&["run", "-detach", "-bundle", &self.bundle(), &id])?;
        self.run(&["exec", &id, "/bin/true"])?;
        Ok((id, millis(began)))
    }

    pub(super) fn exec(&self, id: &str) -> Result<f64> {
        let began = Instant::now();
        self.run(&["exec", id, "/bin/true"])?;
        Ok(millis(began))
    }

    /// The process that touches memory must be the sandbox's own: one that `exec` started could not
    /// be restored.
    pub(super) fn touch(&self, id: &str) -> Result<()> {
        self.end(id);
        let path = self.directory.join("bundle/config.json");
        let text = std::fs::read_to_string(&path).context("read the peer's bundle")?;
        let mut config: serde_json::Value = serde_json::from_str(&text).context("read the peer's bundle")?;
        let sleeping = config["process"]["args"].clone();
        config["process"]["args"] = json!(["python3", "-c", TOUCH]);
        std::fs::write(&path, config.to_string()).context("write the peer's bundle")?;
        let started = self.run(&["run", "-detach", "-bundle", &self.bundle(), id]);
        config["process"]["args"] = sleeping;
        std::fs::write(&path, config.to_string()).context("write the peer's bundle")?;
        started?;
        let end = Instant::now() + Duration::from_secs(120);
        while self.run(&["exec", id, "/bin/test", "-e", "/root/touched"]).is_err() {
            ensure!(Instant::now() < end, "the peer's 256 MiB were not touched");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(super) fn checkpoint(&self, id: &str) -> Result<f64> {
        let image = self.directory.join(format!("image-{id}"));
        std::fs::create_dir_all(&image).context("make the peer's image directory")?;
        let image = image.display().to_string();
        let began = Instant::now();
        self.run(&["checkpoint", "-image-path", &image, "-compression", "none", id])?;
        Ok(millis(began))
    }

    pub(super) fn restore(&self, id: &str) -> Result<f64> {
        self.delete(id);
        self.restore_as(id, id)
    }

    /// Restores one after another until `count` run at the same time, and returns how long all of
    /// them took.
    pub(super) fn restore_many(&self, id: &str, count: usize) -> Result<f64> {
        self.delete(id);
        let ids: Vec<_> = (0..count).map(|number| format!("{id}-{number}")).collect();
        let took = ids.iter().map(|child| self.restore_as(id, child)).sum();
        ids.iter().for_each(|child| self.delete(child));
        took
    }

    fn restore_as(&self, id: &str, child: &str) -> Result<f64> {
        let image = self.directory.join(format!("image-{id}")).display().to_string();
        let began = Instant::now();
        self.run(&["restore", "-detach", "-bundle", &self.bundle(), "-image-path", &image, child])?;
        self.run(&["exec", child, "/bin/true"])?;
        Ok(millis(began))
    }

    fn delete(&self, id: &str) {
        let _ = self.run(&["delete", "-force", id]);
    }

    pub(super) fn end(&self, id: &str) {
        self.delete(id);
        let _ = std::fs::remove_dir_all(self.directory.join(format!("image-{id}")));
    }

    pub(super) fn clear(&self) {
        let Ok(entries) = std::fs::read_dir(self.directory.join("root")) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some((id, _)) = name.split_once("_sandbox:") {
                self.delete(id);
            }
        }
    }
}
