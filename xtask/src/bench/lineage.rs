//! Filesystem snapshots, and rewinding to a snapshot.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use dorm_testing::Daemon;
use serde_json::json;

use super::guest::{answers, appears, fill, first_exec, prepared, put_on_disk, resume};
use super::millis;
use super::rows::Row;
use super::stage::Stage;

/// Creates 10,000 files of up to 8 KB in a hundred directories.
const TREE: &str = "import os\n\
    for n in range(10000):\n\
    \x20   d = f'/root/tree/{n // 100}'\n\
    \x20   if n % 100 == 0: os.makedirs(d)\n\
    \x20   with open(f'{d}/{n}', 'wb') as f: f.write(os.urandom(n % 8000))\n";

/// Packs and unpacks them; reports by its own clock how long packing took, and both.
const TAR: &str = "import os,subprocess,time\n\
    began = time.monotonic()\n\
    subprocess.run(['tar', '-C', '/root/tree', '-cf', '/root/t.tar', '.'], check=True)\n\
    packed = time.monotonic()\n\
    os.mkdir('/root/untarred')\n\
    subprocess.run(['tar', '-C', '/root/untarred', '-xf', '/root/t.tar'], check=True)\n\
    print((packed - began) * 1000, (time.monotonic() - began) * 1000)\n\
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
pub(super) async fn files(stage: &Stage, daemon: &Daemon) -> Result<Vec<Row>> {
    let mut taken = Row::new("filesystem snapshot of 10,000 files and start", 1.0).beside("tar and untar inside");
    let mut still = Row::new("filesystem snapshot of 10,000 files: its source stands still", 0.15).beside("tar inside");
    let (id, _) = first_exec(daemon, 3000).await?;
    run(daemon, &id, TREE).await?;
    for round in 0..stage.rounds(5) {
        eprintln!("bench: files, round {}", round + 1);
        let said = run(daemon, &id, TAR).await?;
        let (packed, both) = said.trim().split_once(' ').with_context(|| format!("milliseconds: '{said}'"))?;
        let (packed, both): (f64, f64) = (packed.parse()?, both.parse()?);
        let watch = json!({ "argv": ["python3", "-c", WATCH] });
        daemon.post(&format!("/sandboxes/{id}/processes"), watch).await?;
        appears(daemon, &id, "/root/watching").await?;
        let began = Instant::now();
        let snapshot = daemon.checkpoint(&id, "filesystem").await?["id"].clone();
        let child = daemon.create(json!({ "snapshot": snapshot })).await?;
        answers(daemon, &child).await?;
        taken.ours.push(millis(began));
        let count = daemon.exec(&child, &["sh", "-c", "ls /root/tree/*/* | wc -l"]).await?;
        ensure!(count.1.trim() == "10000", "the copy has {} files", count.1);
        taken.peer.push(both);
        run(daemon, &id, "open('/root/enough', 'w').close()").await?;
        appears(daemon, &id, "/root/stood").await?;
        let stood = run(daemon, &id, "print(open('/root/stood').read())").await?;
        still.ours.push(stood.trim().parse().context("milliseconds")?);
        still.peer.push(packed);
        run(daemon, &id, "import os; os.remove('/root/stood'); os.remove('/root/watching')").await?;
        daemon.post(&format!("/sandboxes/{child}/terminate"), json!({})).await?;
    }
    daemon.post(&format!("/sandboxes/{id}/terminate"), json!({})).await?;
    Ok(vec![taken, still])
}

/// Compares rewinding to a memory snapshot with resuming from disk.
pub(super) async fn rewind(stage: &Stage, daemon: &Daemon) -> Result<Vec<Row>> {
    let mut asleep = Row::new("rewind of a suspended 256 MiB", 1.2).beside("own resume from disk");
    let mut awake = Row::new("rewind of a running 256 MiB", 1.2).beside("own resume from disk");
    let (id, _) = first_exec(daemon, 3001).await?;
    fill(daemon, &id, 256).await?;
    let snapshot = daemon.checkpoint(&id, "memory").await?["id"].clone();
    for round in 0..stage.rounds(5) {
        eprintln!("bench: rewind, round {}", round + 1);
        put_on_disk(daemon, &id).await?;
        prepared().await;
        let resumed = resume(daemon, &id).await?;
        for (row, sleeps) in [(&mut awake, false), (&mut asleep, true)] {
            if sleeps {
                put_on_disk(daemon, &id).await?;
            }
            rustix::fs::sync();
            prepared().await;
            let began = Instant::now();
            let asked = json!({ "to": snapshot });
            daemon.post(&format!("/sandboxes/{id}/rewind"), asked).await?;
            answers(daemon, &id).await?;
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
