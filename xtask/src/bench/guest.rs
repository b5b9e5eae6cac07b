//! The program that runs in the guests of both sides, and the calls of ours.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dorm_testing::{Daemon, until};
use serde_json::{Value, json};

use super::millis;

/// How long anything in a guest may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// Fills as many MiB as it is told with bytes that cannot be compressed, reports that, and then
/// does with them what it reads from a FIFO. It reports in another how long that took, by its own
/// clock. Neither the program nor its caller uses a CPU while it waits. Repeated questions took as
/// much processor time as the work.
const PROGRAM: &str = "import os,random,sys,time\n\
    size = int(sys.argv[1]) << 20\n\
    held = bytearray(size)\n\
    view = memoryview(held)\n\
    for at in range(0, size, 1 << 20): view[at:at + (1 << 20)] = os.urandom(1 << 20)\n\
    def order():\n\
    \x20   for at in range(0, size, 4096): held[at] = 1\n\
    def scattered():\n\
    \x20   for at in places: held[at] = 1\n\
    def read():\n\
    \x20   for at in range(0, size, 4096): held[at]\n\
    def change():\n\
    \x20   for at in range(size // 2, size // 2 + (10 << 20), 1 << 20): view[at:at + (1 << 20)] = os.urandom(1 << 20)\n\
    words = {'order': order, 'scattered': scattered, 'read': read, 'change': change}\n\
    for path in ('/root/go', '/root/said'): os.mkfifo(path)\n\
    open('/root/touched', 'w').close()\n\
    while True:\n\
    \x20   with open('/root/go') as go: work = words.get(go.read().strip())\n\
    \x20   if not work: continue\n\
    \x20   pages = size // 4096\n\
    \x20   places = [page * 4096 for page in random.sample(range(pages), min(5000, pages))]\n\
    \x20   began = time.monotonic()\n\
    \x20   work()\n\
    \x20   took = time.monotonic() - began\n\
    \x20   with open('/root/said', 'w') as to: to.write(str(took * 1000))\n";

/// An action of the program on its memory.
#[derive(Clone, Copy)]
pub(super) enum Word {
    /// Write one byte of every page, in order.
    Order,
    /// Write one byte of each of 5,000 random pages.
    Scattered,
    /// Read one byte of every page.
    Read,
    /// Write 10 MiB in the middle.
    Change,
}

impl Word {
    /// Returns the command that tells the program, and prints what it reports.
    pub(super) const fn command(self) -> &'static str {
        match self {
            Self::Order => "echo order > /root/go; cat /root/said",
            Self::Scattered => "echo scattered > /root/go; cat /root/said",
            Self::Read => "echo read > /root/go; cat /root/said",
            Self::Change => "echo change > /root/go; cat /root/said",
        }
    }
}

/// Returns the command of a guest that fills `mib` MiB.
pub(super) fn filling(mib: u64) -> Vec<String> {
    ["python3", "-c", PROGRAM, &mib.to_string()].map(str::to_owned).to_vec()
}

/// Returns the memory limit of a guest that fills `mib` MiB, in bytes.
pub(super) const fn limit_of(mib: u64) -> u64 {
    (mib * 5 / 4 + 192) << 20
}

/// Creates a sandbox that can hold `mib` MiB, and fills them.
pub(super) async fn filled(daemon: &Daemon, name: &str, mib: u64) -> Result<String> {
    let resources = json!({ "memory_bytes": limit_of(mib), "disk_bytes": 512 << 20 });
    let id = daemon.create(json!({ "name": name, "image": "base", "resources": resources })).await?;
    fill(daemon, &id, mib).await?;
    Ok(id)
}

/// Starts the program and waits until it has filled its memory.
pub(super) async fn fill(daemon: &Daemon, id: &str, mib: u64) -> Result<()> {
    daemon.post(&format!("/sandboxes/{id}/processes"), json!({ "argv": filling(mib) })).await?;
    appears(daemon, id, "/root/touched").await
}

/// Has the program do this, and returns how many milliseconds it took.
pub(super) async fn tell(daemon: &Daemon, id: &str, word: Word) -> Result<f64> {
    let (code, said) = daemon.exec(id, &["sh", "-c", word.command()]).await?;
    ensure!(code == 0, "the guest took no word: {said}");
    said.trim().parse().with_context(|| format!("milliseconds of the guest: '{said}'"))
}

/// Waits for a file in a sandbox.
pub(super) async fn appears(daemon: &Daemon, id: &str, path: &str) -> Result<()> {
    until(PATIENCE, path, || async { Ok(daemon.exec(id, &["test", "-e", path]).await?.0 == 0) }).await
}

/// Suspends a sandbox and releases its memory.
pub(super) async fn put_on_disk(daemon: &Daemon, id: &str) -> Result<()> {
    daemon.act(id, "suspend").await?;
    is_in(daemon, id, "evict", "evicted").await
}

/// Acts on a sandbox, after which its memory must be in this place.
pub(super) async fn is_in(daemon: &Daemon, id: &str, verb: &str, residence: &str) -> Result<()> {
    let view: Value = daemon.act(id, verb).await?;
    ensure!(view["residence"] == residence, "after {verb} a sandbox is not {residence}: {view}");
    Ok(())
}

/// Resumes a sandbox and returns after how many milliseconds its first exec was answered.
pub(super) async fn resume(daemon: &Daemon, id: &str) -> Result<f64> {
    let began = Instant::now();
    daemon.act(id, "resume").await?;
    answers(daemon, id).await?;
    Ok(millis(began))
}

/// Runs `true` in a sandbox.
pub(super) async fn answers(daemon: &Daemon, id: &str) -> Result<()> {
    ensure!(daemon.exec(id, &["true"]).await?.0 == 0, "true failed in {id}");
    Ok(())
}

/// Gives the daemon the time to prepare warm containers, on both sides of a comparison.
pub(super) async fn prepared() {
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// Creates a sandbox and returns after how many milliseconds its first exec was answered.
pub(super) async fn first_exec(daemon: &Daemon, round: usize) -> Result<(String, f64)> {
    let resources = json!({ "memory_bytes": 1_u64 << 30 });
    let asked = json!({ "name": format!("bench{round}"), "image": "base", "resources": resources });
    let began = Instant::now();
    let id = daemon.create(asked).await?;
    answers(daemon, &id).await?;
    Ok((id, millis(began)))
}

/// The first create of an image boots its template, which is not to be measured.
pub(super) async fn warm(daemon: &Daemon) -> Result<()> {
    for round in 0..3 {
        let (id, _) = first_exec(daemon, 1000 + round).await?;
        daemon.act(&id, "terminate").await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}
