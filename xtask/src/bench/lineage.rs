//! Filesystem snapshots, and rewinding to a snapshot.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use dorm_testing::{Daemon, until};
use serde_json::json;

use super::{PATIENCE, Row, first_exec, millis, resume, touch};

/// Creates 10,000 files of up to 8 KB in a hundred directories.
const TREE: &str = "import os\n\
    for n in range(10000):\n\
    \x20   d = f'/root/tree/{n // 100}'\n\
    \x20   if n % 100 == 0: os.makedirs(d)\n\
    \x20   with open(f'{d}/{n}', 'wb') as f: f.write(os.urandom(n % 8000))\n";

/// Packs and unpacks them; reports by its own clock how long that took.
const TAR: &str = "import os,subprocess,time\n\
    began = time.monotonic()\n\
    subprocess.run(['tar', '-C', '/root/tree', '-cf', '/root/t.tar', '.'], check=True)\n\
    os.mkdir('/root/untarred')\n\
    subprocess.run(['tar', '-C', '/root/untarred', '-xf', '/root/t.tar'], check=True)\n\
    print((time.monotonic() - began) * 1000)\n\
    subprocess.run(['rm', '-rf', '/root/untarred', '/root/t.tar'], check=True)\n";

/// Reports, when told to, for how long it stood still at most.
const WATCH: &str = "import os,time\n\
    most, last = 0, time.monotonic()\n\
    open('/root/watching', 'w').close()\n\
    while not os.path.exists('/root/enough'):\n\
    \x20   time.sleep(0.001)\n\
    \x20   now = time.monotonic()\n\
    \x20   most, last = max(most, now - last), now\n\
    os.remove('/root/enough')\n\
    open('/root/stood.tmp', 'w').write(str(most * 1000))\n\
    os.rename('/root/stood.tmp', '/root/stood')\n";

/// Compares a filesystem snapshot of 10,000 files and a start from it with packing and unpacking
/// them in the sandbox, and measures how long the source stands still.
pub(super) async fn files(daemon: &Daemon) -> Result<Vec<Row>> {
    let mut taken = Row::new("files: snapshot of 10,000 and start, beside tar and untar inside", 1.0);
    let mut still = Row::new("files: source stands still, beside tar and untar inside", 0.1);
    let (id, _) = first_exec(daemon, 3000).await?;
    run(daemon, &id, TREE).await?;
    for round in 0..3 {
        eprintln!("bench: files, round {} of 3", round + 1);
        let tarred: f64 = run(daemon, &id, TAR).await?.trim().parse().context("milliseconds")?;
        let watch = json!({ "argv": ["python3", "-c", WATCH] });
        daemon.post(&format!("/sandboxes/{id}/processes"), watch).await?;
        appears(daemon, &id, "/root/watching").await?;
        let began = Instant::now();
        let snapshot = daemon.checkpoint(&id, "filesystem").await?["id"].clone();
        let child = daemon.create(json!({ "snapshot": snapshot })).await?;
        ensure!(daemon.exec(&child, &["true"]).await?.0 == 0, "true failed");
        taken.ours.push(millis(began));
        let count = daemon.exec(&child, &["sh", "-c", "ls /root/tree/*/* | wc -l"]).await?;
        ensure!(count.1.trim() == "10000", "the copy has {} files", count.1);
        taken.peer.push(tarred);
        run(daemon, &id, "open('/root/enough', 'w').close()").await?;
        appears(daemon, &id, "/root/stood").await?;
        let stood = run(daemon, &id, "print(open('/root/stood').read())").await?;
        still.ours.push(stood.trim().parse().context("milliseconds")?);
        still.peer.push(tarred);
        run(daemon, &id, "import os; os.remove('/root/stood'); os.remove('/root/watching')").await?;
        daemon.post(&format!("/sandboxes/{child}/terminate"), json!({})).await?;
    }
    daemon.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
    Ok(vec![taken, still])
}

/// Compares rewinding to a memory snapshot with resuming from disk.
pub(super) async fn rewind(daemon: &Daemon) -> Result<Vec<Row>> {
    let mut asleep = Row::new("rewind of a suspended 256 MiB, beside a resume from disk", 1.2);
    let mut awake = Row::new("rewind of a running 256 MiB, beside a resume from disk", 1.2);
    let (id, _) = first_exec(daemon, 3001).await?;
    touch(daemon, &id).await?;
    let snapshot = daemon.checkpoint(&id, "memory").await?["id"].clone();
    for round in 0..5 {
        eprintln!("bench: rewind, round {} of 5", round + 1);
        daemon.post(&format!("/sandboxes/{id}/suspend"), json!({})).await?;
        daemon.post(&format!("/sandboxes/{id}/evict"), json!({})).await?;
        let resumed = resume(daemon, &id).await?;
        for (row, sleeps) in [(&mut awake, false), (&mut asleep, true)] {
            if sleeps {
                daemon.post(&format!("/sandboxes/{id}/suspend"), json!({})).await?;
                daemon.post(&format!("/sandboxes/{id}/evict"), json!({})).await?;
            }
            rustix::fs::sync();
            let began = Instant::now();
            let asked = json!({ "to": snapshot, "keep": "none" });
            daemon.post(&format!("/sandboxes/{id}/rewind"), asked).await?;
            ensure!(daemon.exec(&id, &["true"]).await?.0 == 0, "true failed");
            row.ours.push(millis(began));
            row.peer.push(resumed);
        }
    }
    daemon.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
    Ok(vec![asleep, awake])
}

async fn run(daemon: &Daemon, id: &str, program: &str) -> Result<String> {
    let (code, said) = daemon.exec(id, &["python3", "-c", program]).await?;
    ensure!(code == 0, "a program of the bench exited with {code}: {said}");
    Ok(said)
}

async fn appears(daemon: &Daemon, id: &str, path: &str) -> Result<()> {
    until(PATIENCE, path, || async { Ok(daemon.exec(id, &["test", "-e", path]).await?.0 == 0) }).await
}
