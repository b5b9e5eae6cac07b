//! `cargo xtask release-data`: makes a small data directory with one of everything, which later
//! builds must be able to open. It is made once per release, by the tagged build, and is kept in
//! `crates/dorm/tests/releases`. The upgrade test reads it: `crates/dorm/tests/daemon/upgrade.rs`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use crate::setup;

/// Answers each line of one pipe on another with a number that is only in its memory. It keeps the
/// pipes open: under gVisor, a program that is just opening a pipe sees an interrupted call after a
/// restore.
const COUNTER: &str = "mkfifo /tmp/ask /tmp/answer; exec 3<>/tmp/ask 4<>/tmp/answer; i=40; echo ready > /tmp/ready; \
                       while read line <&3; do i=$((i+1)); echo $i >&4; done";
/// Asks it.
const ASK: &str = "echo > /tmp/ask; read answer < /tmp/answer; echo $answer";
/// The programs of the image, all of them links to one file.
const PROGRAMS: [&str; 8] = ["sh", "cat", "echo", "mkfifo", "sleep", "ls", "mkdir", "test"];
/// The lists that the upgrade test compares.
const LISTS: [&str; 6] =
    ["/sandboxes?limit=1000", "/snapshots?limit=1000", "/volumes", "/webhooks", "/keys", "/operations?limit=1000"];

/// Makes the data directory with the built `dorm`, and writes it to the repository.
pub(crate) async fn run(dorm: &Path) -> Result<()> {
    let root = setup::root()?;
    let version = env!("CARGO_PKG_VERSION");
    let place = tempfile::Builder::new().prefix("dormouse-release-").tempdir_in("/var/tmp")?;
    let directory = place.path();
    let image = image(directory)?;
    let (data, images) = (directory.join("data"), directory.join("images"));
    let options = ["--warm-containers", "0", "--allow-network", "127.0.0.0/8"];
    let mut daemon = Daemon::start(dorm, &data, &images, &directory.join("log"), &options)?;
    daemon.import_image(&image, "tiny").await?;
    let made = fill(&daemon).await;
    let stopped = daemon.stop();
    let facts = made?;
    ensure!(stopped? == Some(0), "the daemon did not stop cleanly: {}", daemon.log());
    fs::write(directory.join("facts.json"), serde_json::to_string_pretty(&facts)?).context("write the facts")?;
    let archive = root.join("crates/dorm/tests/releases").join(format!("v{version}.tar.gz"));
    if let Some(parent) = archive.parent() {
        fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    }
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(&archive).args(["--use-compress-program", "gzip -9n", "--sparse"]);
    tar.args(["--numeric-owner", "--xattrs", "--xattrs-include=*", "--sort=name", "--exclude=*.sock", "--directory"])
        .arg(directory);
    tar.args(["data", "images", "facts.json"]);
    ensure!(tar.status().context("start tar")?.success(), "tar failed");
    let bytes = fs::metadata(&archive).with_context(|| format!("read {}", archive.display()))?.len();
    println!("{}: {bytes} bytes", archive.display());
    Ok(())
}

/// A root file system with a shell, as a tar archive.
fn image(directory: &Path) -> Result<PathBuf> {
    let (root, archive) = (directory.join("root"), directory.join("tiny.tar"));
    fs::create_dir_all(&root).context("make a root directory")?;
    let shell =
        "apt-get download -q busybox-static && dpkg-deb -x busybox-static_*.deb root && rm busybox-static_*.deb";
    let status = Command::new("sh").args(["-ec", shell]).current_dir(directory).status().context("start a shell")?;
    ensure!(status.success(), "cannot get the package busybox-static");
    fs::remove_dir_all(root.join("usr")).context("remove the documentation")?;
    for program in PROGRAMS {
        symlink("busybox", root.join("bin").join(program)).with_context(|| format!("link {program}"))?;
    }
    for directory in ["tmp", "etc", "mnt"] {
        fs::create_dir_all(root.join(directory)).with_context(|| format!("make {directory}"))?;
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").context("write the users")?;
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--file").arg(&archive).args(["--numeric-owner", "--owner=0", "--group=0", "--directory"]);
    ensure!(tar.arg(&root).arg(".").status().context("start tar")?.success(), "cannot pack the image");
    Ok(archive)
}

/// Makes one of everything, and returns what the upgrade test must find.
async fn fill(daemon: &Daemon) -> Result<Value> {
    let sandbox = |name: &str| {
        json!({
            "name": name, "image": "tiny", "env": { "COLOUR": "red" }, "labels": { "of": "release" },
            "resources": { "memory_bytes": 128 << 20, "disk_bytes": 64 << 20 },
        })
    };
    daemon.post("/volumes", json!({ "name": "data", "size_bytes": 64 << 20 })).await?;
    put(daemon, "/volumes/data/files?path=kept", "on a volume").await?;
    let mut asked = sandbox("asleep");
    asked["volumes"] = json!([{ "volume": "data", "path": "/mnt" }]);
    asked["secrets"] = json!({ "TOKEN": "hunter2" });
    let asleep = daemon.create(asked).await?;
    daemon.post(&format!("/sandboxes/{asleep}/processes"), json!({ "argv": ["/bin/sh", "-c", COUNTER] })).await?;
    exec(daemon, &asleep, "until test -e /tmp/ready; do sleep 0.1; done; echo kept > /file").await?;
    ensure!(exec(daemon, &asleep, ASK).await? == "41\n", "the counter does not count");
    let files = daemon.checkpoint(&asleep, "filesystem").await?;
    let other = daemon.create(sandbox("other")).await?;
    daemon.post(&format!("/sandboxes/{other}/processes"), json!({ "argv": ["/bin/sh", "-c", COUNTER] })).await?;
    exec(daemon, &other, "until test -e /tmp/ready; do sleep 0.1; done").await?;
    let memory = daemon.checkpoint(&other, "memory").await?;
    daemon.act(&other, "terminate").await?;
    let scheduled = json!({ "every_secs": 3600, "keep": "3,24x1h", "kind": "filesystem" });
    daemon.post(&format!("/sandboxes/{asleep}/checkpoints"), scheduled).await?;
    daemon.post("/webhooks", json!({ "url": "http://127.0.0.1:9/", "kinds": ["created"] })).await?;
    let key = daemon.post("/keys", json!({ "name": "release", "scope": "read_only" })).await?;
    daemon.act(&asleep, "suspend").await?;
    daemon.act(&asleep, "evict").await?;
    let mut lists = serde_json::Map::new();
    for list in LISTS {
        let mut shown = daemon.get(list).await?;
        // A webhook advances also over events that it does not receive.
        let webhooks = shown.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten();
        for webhook in webhooks.filter_map(Value::as_object_mut) {
            webhook.remove("delivered");
        }
        lists.insert(list.to_owned(), shown);
    }
    let cpu = fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?;
    let flags = cpu.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    Ok(json!({
        "asleep": asleep, "files": files["id"], "memory": memory["id"], "key": key["key"], "ask": ASK,
        "events": daemon.get("/events?limit=1000").await?["events"], "lists": lists,
        "cpu_flags": flags.trim_start_matches([' ', '\t', ':']).split_whitespace().collect::<Vec<_>>(),
    }))
}

async fn exec(daemon: &Daemon, id: &str, script: &str) -> Result<String> {
    let (code, output) = daemon.exec(id, &["/bin/sh", "-c", script]).await?;
    ensure!(code == 0, "{script}: {code}: {output}");
    Ok(output)
}

async fn put(daemon: &Daemon, path: &str, content: &str) -> Result<()> {
    let answer = daemon.request(Method::PUT, path).body(content.to_owned()).send().await?;
    let status = answer.status();
    ensure!(status.is_success(), "PUT {path}: {status}: {}", answer.text().await?);
    Ok(())
}
