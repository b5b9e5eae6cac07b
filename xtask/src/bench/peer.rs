//! The peer: commands of stock `runsc` on the same root file system, as a user would run them by
//! hand.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dorm_cgroup::{Cgroup, Limits, Precedence};
use dorm_storage::GuestIds;
use serde_json::json;

use super::guest::{PATIENCE, Word, filling};
use super::millis;

/// Enters a control group before it becomes `runsc`: it waits until its parent has moved it there.
const ENTERING: &str = "read -r _ && exec \"$@\" < /dev/null";

/// How long a checkpoint took, in milliseconds.
pub(super) struct Checkpoint {
    /// Until the command ended.
    pub(super) plain: f64,
    /// Until its files were on the disk as well.
    pub(super) synced: f64,
}

/// Containers of stock `runsc`, in a directory of their own.
pub(super) struct Peer {
    runsc: PathBuf,
    directory: PathBuf,
    rootfs: PathBuf,
    group: Option<Cgroup>,
}

impl Peer {
    /// Containers of `runsc` below `directory`, over `rootfs`.
    pub(super) fn new(runsc: &Path, directory: &Path, rootfs: &Path) -> Result<Self> {
        let overlay = directory.join("overlay");
        fs::create_dir_all(&overlay).with_context(|| format!("make {}", overlay.display()))?;
        let owner = Some(GuestIds::DEFAULT.base());
        std::os::unix::fs::chown(&overlay, owner, owner).context("give the overlay to the guest")?;
        let (runsc, directory, rootfs) = (runsc.to_owned(), directory.to_owned(), rootfs.to_owned());
        Ok(Self { runsc, directory, rootfs, group: None })
    }

    /// Puts every container that starts from now on into a control group, to measure it.
    pub(super) fn in_group(mut self, name: &str) -> Result<Self> {
        let limits =
            Limits { cpu_millis: 1_000_000, precedence: Precedence::Fair, memory_bytes: 1 << 50, threads: 1 << 20 };
        self.group = Some(Cgroup::create(name, &limits).context("make the peer's control group")?);
        Ok(self)
    }

    /// Returns its control group.
    pub(super) fn group(&self) -> Result<&Cgroup> {
        self.group.as_ref().context("the peer has no control group")
    }

    fn command(&self) -> Result<Command> {
        let log = self.directory.join("log");
        let log =
            File::options().create(true).append(true).open(&log).with_context(|| format!("open {}", log.display()))?;
        let mut command = match &self.group {
            Some(_) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", ENTERING, "sh"]).arg(&self.runsc).stdin(Stdio::piped());
                shell
            }
            None => {
                let mut plain = Command::new(&self.runsc);
                plain.stdin(Stdio::null());
                plain
            }
        };
        command
            .arg(format!("--root={}", self.directory.join("root").display()))
            .args(["--network=none", "--ignore-cgroups"])
            .arg(format!("--overlay2=root:dir={}", self.directory.join("overlay").display()))
            .stdout(log.try_clone().context("open the peer's log")?)
            .stderr(log);
        Ok(command)
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut child = self.command()?.args(arguments).spawn().context("run runsc")?;
        if let (Some(group), Some(mut door)) = (&self.group, child.stdin.take()) {
            let entered = group.add(child.id()).context("move runsc into the peer's control group");
            if let Err(error) = entered.and_then(|()| door.write_all(b"go\n").context("let runsc start")) {
                drop(door);
                let _ = child.wait();
                return Err(error);
            }
        }
        let status = child.wait().context("wait for runsc")?;
        if !status.success() {
            let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            let end: Vec<_> = log.lines().rev().take(5).collect();
            bail!("runsc {}: {status}: {}", arguments.join(" "), end.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        Ok(())
    }

    fn bundle(&self, id: &str) -> PathBuf {
        self.directory.join(format!("bundle-{id}"))
    }

    fn image(&self, id: &str) -> PathBuf {
        self.directory.join(format!("image-{id}"))
    }

    fn write_bundle(&self, id: &str, argv: &[String]) -> Result<String> {
        let bundle = self.bundle(id);
        fs::create_dir_all(&bundle).with_context(|| format!("make {}", bundle.display()))?;
        let mapping = json!([{ "containerID": 0, "hostID": GuestIds::DEFAULT.base(), "size": GuestIds::COUNT }]);
        let config = json!({
            "ociVersion": "1.0.0",
            "process": {
                "user": { "uid": 0, "gid": 0 }, "args": argv, "cwd": "/",
                "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"],
            },
            "root": { "path": self.rootfs, "readonly": false },
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
        fs::write(bundle.join("config.json"), config.to_string()).context("write the peer's bundle")?;
        Ok(bundle.display().to_string())
    }

    /// Starts a container that does nothing.
    pub(super) fn start(&self, id: &str) -> Result<()> {
        let bundle = self.write_bundle(id, &["sleep", "100000"].map(str::to_owned))?;
        self.run(&["run", "-detach", "-bundle", &bundle, id])
    }

    /// Starts a container and returns how long its first exec took from there.
    pub(super) fn first_exec(&self, id: &str) -> Result<f64> {
        let bundle = self.write_bundle(id, &["sleep", "100000"].map(str::to_owned))?;
        let began = Instant::now();
        self.run(&["run", "-detach", "-bundle", &bundle, id])?;
        self.run(&["exec", id, "/bin/true"])?;
        Ok(millis(began))
    }

    /// Returns how long an exec takes.
    pub(super) fn exec(&self, id: &str) -> Result<f64> {
        let began = Instant::now();
        self.run(&["exec", id, "/bin/true"])?;
        Ok(millis(began))
    }

    /// Starts a container that fills `mib` MiB, and waits for that. The program must be the
    /// container's own: one that `exec` started could not be restored.
    pub(super) fn fill(&self, id: &str, mib: u64) -> Result<()> {
        let bundle = self.write_bundle(id, &filling(mib))?;
        self.run(&["run", "-detach", "-bundle", &bundle, id])?;
        self.appears(id, "/root/touched")
    }

    fn appears(&self, id: &str, path: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.run(&["exec", id, "/bin/test", "-e", path]).is_err() {
            ensure!(Instant::now() < end, "{path} did not appear in the peer's container {id}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Has the program do this, and returns how many milliseconds it took.
    pub(super) fn tell(&self, id: &str, word: Word) -> Result<f64> {
        let mut command = Command::new(&self.runsc);
        let root = format!("--root={}", self.directory.join("root").display());
        let output =
            command.arg(root).args(["exec", id, "/bin/sh", "-c", word.command()]).output().context("run runsc")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.trim().parse().with_context(|| format!("milliseconds of the peer's guest: '{said}'"))
    }

    /// Takes a checkpoint, which ends the container.
    pub(super) fn checkpoint(&self, id: &str) -> Result<Checkpoint> {
        self.checkpoint_to(id, &self.image(id))
    }

    fn checkpoint_to(&self, id: &str, image: &Path) -> Result<Checkpoint> {
        fs::create_dir_all(image).with_context(|| format!("make {}", image.display()))?;
        let shown = image.display().to_string();
        let began = Instant::now();
        self.run(&["checkpoint", "-image-path", &shown, "-compression", "none", id])?;
        let plain = millis(began);
        let files = fs::read_dir(image).with_context(|| format!("list {shown}"))?;
        for file in files.flatten() {
            let path = file.path();
            File::open(&path).and_then(|file| file.sync_all()).with_context(|| format!("sync {}", path.display()))?;
        }
        File::open(image).and_then(|directory| directory.sync_all()).with_context(|| format!("sync {shown}"))?;
        Ok(Checkpoint { plain, synced: millis(began) })
    }

    /// Takes a checkpoint of a restored container into files that are removed again.
    pub(super) fn checkpoint_again(&self, id: &str) -> Result<Checkpoint> {
        let image = self.image("again");
        let taken = self.checkpoint_to(id, &image);
        fs::remove_dir_all(&image).with_context(|| format!("remove {}", image.display()))?;
        taken
    }

    /// Ends the container and restores it. Returns how long its first exec took from there.
    pub(super) fn restore(&self, id: &str) -> Result<f64> {
        self.delete(id);
        self.restore_as(id, id)
    }

    /// Restores `children` one after another, and returns how long all of them took.
    pub(super) fn restore_each(&self, id: &str, children: &[String]) -> Result<f64> {
        children.iter().map(|child| self.restore_as(id, child)).sum()
    }

    /// Restores `children` at the same time, and returns after how long all of them had answered.
    pub(super) fn restore_together(&self, id: &str, children: &[String]) -> Result<f64> {
        let began = Instant::now();
        std::thread::scope(|scope| {
            let restores: Vec<_> = children.iter().map(|child| scope.spawn(|| self.restore_as(id, child))).collect();
            restores.into_iter().try_for_each(|restore| match restore.join() {
                Ok(restored) => restored.map(drop),
                Err(_) => bail!("a restore of the peer panicked"),
            })
        })?;
        Ok(millis(began))
    }

    fn restore_as(&self, id: &str, child: &str) -> Result<f64> {
        let (bundle, image) = (self.bundle(id).display().to_string(), self.image(id).display().to_string());
        let began = Instant::now();
        self.run(&["restore", "-detach", "-bundle", &bundle, "-image-path", &image, child])?;
        self.run(&["exec", child, "/bin/true"])?;
        Ok(millis(began))
    }

    fn delete(&self, id: &str) {
        let _ = self.run(&["delete", "-force", id]);
    }

    /// Ends containers, all at the same time.
    pub(super) fn delete_all(&self, ids: &[String]) {
        std::thread::scope(|scope| ids.iter().for_each(|id| drop(scope.spawn(|| self.delete(id)))));
    }

    /// Ends a container and removes its image.
    pub(super) fn end(&self, id: &str) {
        self.delete(id);
        let _ = fs::remove_dir_all(self.image(id));
        let _ = fs::remove_dir_all(self.bundle(id));
    }

    /// Ends every container.
    pub(super) fn end_all(&self) {
        let entries = fs::read_dir(self.directory.join("root")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let ids: Vec<_> = names.filter_map(|name| Some(name.split_once("_sandbox:")?.0.to_owned())).collect();
        self.delete_all(&ids);
    }

    /// Ends every container and removes what they left.
    fn clear(&self) {
        self.end_all();
        if let Some(group) = &self.group
            && let Err(error) = group.kill_all().and_then(|()| group.remove())
        {
            eprintln!("bench: the peer's control group stays: {error}");
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.clear();
    }
}
