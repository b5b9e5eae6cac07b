//! A very slow disk: the loop device of a volume writes 500 kB/s while its sandbox is suspended.
//! Other callers are answered meanwhile, the daemon is killed during the suspend, and nothing is
//! lost.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dorm_testing::loop_device;
use reqwest::Method;
use serde_json::json;

use crate::host::word;
use crate::report::Kind;
use crate::world::{Fault, WarmContainers, World, fault};

/// The file with the write limits of a device for all processes, in control groups of version 1.
const LIMIT: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
/// Bytes per second.
const RATE: u64 = 500_000;
/// Fills the volume with data that the disk does not have yet.
const FILL: &str = "dd if=/dev/zero of=/slow/file bs=65536 count=160 2>/dev/null";
/// How long an operation of another caller may take.
const OTHERS: Duration = Duration::from_secs(60);

/// The limit of a device, until it is dropped.
struct Throttle {
    device: String,
}

impl Throttle {
    fn set(device: String) -> Result<Self> {
        std::fs::write(LIMIT, format!("{device} {RATE}")).with_context(|| format!("limit device {device}"))?;
        Ok(Self { device })
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = std::fs::write(LIMIT, format!("{} 0", self.device));
    }
}

pub(super) async fn run(world: &mut World) -> Result<(u64, Vec<Fault>)> {
    // In version 2 only groups other than the root have limits, and the daemon may be in any group.
    if !Path::new(LIMIT).exists() {
        return Ok((0, Vec::new()));
    }
    let name = format!("slow-{}", world.number());
    world.daemon.post("/volumes", json!({ "name": name, "size_bytes": 128 << 20 })).await?;
    let mounted = json!([{ "volume": name, "path": "/slow" }]);
    let mut probe = world.create(json!({ "name": name, "volumes": mounted })).await?;
    let throttle = Throttle::set(device(world, &name).await?)?;
    let mut faults = Vec::new();
    for is_killed in [false, true] {
        probe.note(&world.daemon).await?;
        let (code, said) = world.daemon.exec(&probe.id, &["sh", "-c", FILL]).await?;
        if code != 0 {
            bail!("fill the slow volume: {said}");
        }
        let path = format!("/sandboxes/{}/suspend", probe.id);
        let suspending = world.daemon.try_ask(Method::POST, &path, Some(json!({})));
        let (suspended, other) =
            tokio::join!(suspending, tokio::time::timeout(OTHERS, somebody_else(world, &probe.id, &name)));
        match other {
            Ok(other) => other?,
            Err(_) => faults.push((Kind::WrongAnswer, "somebody else waits for a disk that is not theirs".to_owned())),
        }
        let suspended = suspended?;
        if suspended.status >= 400 {
            let what = format!("a suspend failed because a disk is slow: {}", suspended.body);
            faults.push((Kind::WrongAnswer, what));
        }
        world.daemon.act(&probe.id, "resume").await?;
        faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
        if is_killed {
            world.daemon.exec(&probe.id, &["sh", "-c", FILL]).await?;
            let suspending = world.daemon.try_ask(Method::POST, &path, Some(json!({})));
            let _ = tokio::time::timeout(Duration::from_secs(2), suspending).await;
            world.restart(WarmContainers::None)?;
            world.daemon.act(&probe.id, "resume").await?;
            faults.extend(probe.is_whole(&world.daemon).await.err().map(fault));
        }
    }
    drop(throttle);
    world.daemon.act(&probe.id, "terminate").await?;
    world.daemon.ask(Method::DELETE, &format!("/volumes/{name}"), None).await?;
    faults.extend(world.settle().await?);
    Ok((2, faults))
}

/// Another caller creates, suspends, resumes and ends a sandbox.
async fn somebody_else(world: &World, slow: &str, name: &str) -> Result<()> {
    world.daemon.describe(slow).await?;
    let mut other = world.create(json!({ "name": format!("beside-{name}") })).await?;
    for verb in ["suspend", "resume"] {
        world.daemon.act(&other.id, verb).await?;
    }
    if let Err(loss) = other.is_whole(&world.daemon).await {
        bail!(crate::world::said(loss));
    }
    world.daemon.act(&other.id, "terminate").await?;
    Ok(())
}

/// The loop device of a volume, as `major:minor`.
async fn device(world: &World, name: &str) -> Result<String> {
    let view = world.daemon.get(&format!("/volumes/{name}")).await?;
    let image: PathBuf = world.traces.data.join("volumes").join(word(&view, "id")).join("disk.img");
    let name = loop_device(&image).with_context(|| format!("no loop device has {} behind it", image.display()))?;
    let number = std::fs::read_to_string(Path::new("/sys/block").join(name).join("dev")).context("read its number")?;
    Ok(number.trim_end().to_owned())
}
