//! Waking memory of several sizes: from disk, and while it is still held.

use anyhow::Result;
use dorm_testing::Daemon;

use super::guest::{filled, is_in, put_on_disk, resume};
use super::peer::Peer;
use super::rows::Row;
use super::stage::Stage;

/// The sizes, with the limit of the ratio to `runsc restore`.
const SIZES: [(u64, &str, Option<f64>); 3] =
    [(256, "256 MiB", None), (1024, "1 GiB", Some(0.2)), (4096, "4 GiB", None)];
/// The largest size may take this much longer than the smallest.
const FLAT: f64 = 1.3;
/// A parked resume of the largest size, beside `runsc restore`.
const PARKED: f64 = 0.12;
/// Both sides hold the memory, and their images are in the page cache.
const NEEDED_MIB: u64 = 3 * 4096;

/// Compares the time to the first exec with `runsc restore` and an exec.
pub(super) async fn wake(stage: &Stage, daemon: &Daemon, peer: &Peer) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut smallest = Vec::new();
    for (mib, size, limit) in SIZES {
        let name = format!("wake of {size} from disk to first exec");
        let mut row = limit.map_or_else(|| Row::shown(&name), |limit| Row::new(&name, limit)).plotted("wake", size);
        let mut parked = Row::new(format!("resume of a parked {size} to first exec"), PARKED);
        let mut flat = Row::new(format!("wake of {size} from disk"), FLAT).beside("own 256 MiB");
        let largest = mib == 4096;
        if largest && let Some(reason) = lacks(stage)? {
            rows.extend([row, flat, parked].map(|row| row.missing(reason.clone())));
            continue;
        }
        let id = filled(daemon, &format!("wake{mib}"), mib).await?;
        let bare = format!("wake{mib}");
        peer.fill(&bare, mib)?;
        peer.checkpoint(&bare)?;
        for round in 0..stage.rounds(if largest { 3 } else { 7 }) {
            eprintln!("bench: wake of {size}, round {}", round + 1);
            put_on_disk(daemon, &id).await?;
            // One side must not pay for what the other, as the peer does, leaves unwritten.
            rustix::fs::sync();
            row.ours.push(resume(daemon, &id).await?);
            row.peer.push(peer.restore(&bare)?);
            peer.delete_all(std::slice::from_ref(&bare));
            if largest {
                is_in(daemon, &id, "suspend", "parked").await?;
                parked.ours.push(resume(daemon, &id).await?);
            }
        }
        peer.end(&bare);
        daemon.act(&id, "terminate").await?;
        if largest {
            parked.peer.clone_from(&row.peer);
            flat.ours.clone_from(&row.ours);
            flat.peer = std::mem::take(&mut smallest);
            rows.extend([row, flat, parked]);
        } else {
            if smallest.is_empty() {
                smallest.clone_from(&row.ours);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Returns what the host lacks for the largest size, if anything.
fn lacks(stage: &Stage) -> Result<Option<String>> {
    let available = available_mib()?;
    if available < NEEDED_MIB {
        return Ok(Some(format!("{available} MiB of memory are available, {NEEDED_MIB} are needed")));
    }
    let disk = rustix::fs::statvfs(&stage.directory)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
    Ok((free < NEEDED_MIB + 4096).then(|| format!("{free} MiB of the disk are free, {} are needed", NEEDED_MIB + 4096)))
}

fn available_mib() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.map_or(0, |kib| kib >> 10))
}
