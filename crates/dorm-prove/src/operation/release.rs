//! The memory of a parked sandbox is released to its image: it has all of it, whenever the daemon
//! dies.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dorm_testing::{Daemon, until};
use serde_json::{Value, json};

use super::Scene;
use crate::probe::PATIENCE;
use crate::report::Kind;
use crate::world::{Fault, World};

/// Holds more memory than a run may keep, and says whether it has changed when it is asked.
const HOLDER: &str = "import os, zlib\n\
    held = os.urandom(48 << 20)\n\
    was = zlib.crc32(held)\n\
    for path in ('/root/ask', '/root/told'):\n\
    \x20   if not os.path.exists(path): os.mkfifo(path)\n\
    open('/root/holds', 'w').close()\n\
    open('/root/ask').read()\n\
    os.remove('/root/holds')\n\
    open('/root/told', 'w').write('same' if zlib.crc32(held) == was else 'other')\n";
/// The last step of a release.
const RELEASED: &str = "gvisor: memory of a parked run released";
/// How long the daemon may take to begin. An engine that releases nothing never does.
const WAIT: Duration = Duration::from_secs(5);

/// Suspends a running sandbox that holds much memory.
pub(super) async fn prepare(daemon: &Daemon, scene: &mut Scene) -> Result<()> {
    let subject = scene.subject.as_mut().context("no sandbox to suspend")?;
    let id = &subject.id;
    daemon.post(&format!("/sandboxes/{id}/processes"), json!({ "argv": ["python3", "-c", HOLDER] })).await?;
    until(PATIENCE, "/root/holds", || async { Ok(daemon.exec(id, &["test", "-e", "/root/holds"]).await?.0 == 0) })
        .await?;
    daemon.act(id, "suspend").await?;
    subject.has_slept();
    Ok(())
}

/// Waits for the release. Nothing is asked of the daemon but whether it lives.
pub(super) async fn perform(world: &World) -> Result<Value> {
    let end = Instant::now() + WAIT;
    while world.watcher.times(RELEASED) == 0 && Instant::now() < end {
        world.daemon.get("/info").await.context("while memory is released")?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(Value::Null)
}

/// Checks the memory of the sandbox, which runs.
pub(super) async fn judge(daemon: &Daemon, id: &str, faults: &mut Vec<Fault>) -> Result<()> {
    let (code, said) = daemon.exec(id, &["sh", "-c", "echo > /root/ask; cat /root/told"]).await?;
    ensure!(code == 0, "the holder of memory was not asked: {said}");
    if said.trim() != "same" {
        faults.push((Kind::DataLost, format!("the memory of sandbox {id} is not what was saved: {said}")));
    }
    Ok(())
}
