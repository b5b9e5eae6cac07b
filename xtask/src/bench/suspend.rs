//! Suspending: for the first time, and after a wake that changed little.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dorm_testing::Daemon;

use super::guest::{Word, filled, put_on_disk, resume, tell};
use super::millis;
use super::peer::Peer;
use super::reflink;
use super::rows::Row;
use super::stage::Stage;

/// How long a parked sandbox has to release its memory to its image.
const PARKED_FOR: Duration = Duration::from_secs(3);
/// The limits beside a checkpoint whose files are synced.
const WITH_REFLINK: f64 = 0.15;
const WITHOUT_REFLINK: f64 = 0.4;
const FIRST: f64 = 1.0;

/// Compares suspends with checkpoints of stock `runsc`. Ours are on the disk and verified when they
/// are answered; the peer's are when their files have been synced.
pub(super) async fn suspend(stage: &Stage, daemon: &Daemon, peer: &Peer) -> Result<Vec<Row>> {
    let mut rows = first(stage, daemon, peer).await?;
    let limit = if reflink::works_in(&stage.directory)? { WITH_REFLINK } else { WITHOUT_REFLINK };
    rows.extend(woken(stage, daemon, peer, &reflink::kind_of(&stage.directory)?, limit).await?);
    Ok(rows)
}

async fn first(stage: &Stage, daemon: &Daemon, peer: &Peer) -> Result<Vec<Row>> {
    const MIB: u64 = 256;
    let mut synced = Row::new("first suspend of 256 MiB, durable; checkpoint and sync of its files", FIRST);
    let mut plain = Row::shown("first suspend of 256 MiB, durable; checkpoint without sync");
    for round in 0..stage.rounds(5) {
        eprintln!("bench: first suspend, round {}", round + 1);
        let id = filled(daemon, &format!("first{round}"), MIB).await?;
        peer.fill("first", MIB)?;
        rustix::fs::sync();
        let began = Instant::now();
        daemon.act(&id, "suspend").await?;
        let took = millis(began);
        rustix::fs::sync();
        let checkpoint = peer.checkpoint("first");
        peer.end("first");
        daemon.act(&id, "terminate").await?;
        let checkpoint = checkpoint?;
        synced.ours.push(took);
        synced.peer.push(checkpoint.synced);
        plain.ours.push(took);
        plain.peer.push(checkpoint.plain);
    }
    Ok(vec![synced, plain])
}

/// A woken sandbox of 1 GiB has written 10 MiB and is suspended again, and once more after a resume
/// in memory. Another one is never on disk alone.
async fn woken(stage: &Stage, daemon: &Daemon, peer: &Peer, disk: &str, limit: f64) -> Result<[Row; 3]> {
    const MIB: u64 = 1024;
    let mut row = Row::new(format!("suspend of a woken 1 GiB that wrote 10 MiB, durable, on {disk}"), limit);
    let mut again = Row::new(format!("the same after a resume in memory, durable, on {disk}"), limit);
    let mut parked =
        Row::new(format!("the same of a 1 GiB that was parked for some seconds, durable, on {disk}"), limit);
    let id = filled(daemon, "woken", MIB).await?;
    let kept = filled(daemon, "kept", MIB).await?;
    daemon.act(&kept, "suspend").await?;
    peer.fill("woken", MIB)?;
    peer.checkpoint("woken")?;
    for round in 0..stage.rounds(5) {
        eprintln!("bench: suspend of a woken 1 GiB on {disk}, round {}", round + 1);
        put_on_disk(daemon, &id).await?;
        resume(daemon, &id).await?;
        for row in [&mut row, &mut again] {
            row.ours.push(changed(daemon, &id).await?);
            resume(daemon, &id).await?;
        }
        tokio::time::sleep(PARKED_FOR).await;
        resume(daemon, &kept).await?;
        parked.ours.push(changed(daemon, &kept).await?);
        peer.restore("woken")?;
        peer.tell("woken", Word::Change)?;
        rustix::fs::sync();
        row.peer.push(peer.checkpoint_again("woken")?.synced);
    }
    peer.end("woken");
    for id in [&id, &kept] {
        daemon.act(id, "terminate").await?;
    }
    again.peer.clone_from(&row.peer);
    parked.peer.clone_from(&row.peer);
    Ok([row, again, parked])
}

/// Changes 10 MiB in a running sandbox, and returns how many milliseconds its suspend took then.
async fn changed(daemon: &Daemon, id: &str) -> Result<f64> {
    tell(daemon, id, Word::Change).await?;
    rustix::fs::sync();
    let began = Instant::now();
    daemon.act(id, "suspend").await?;
    Ok(millis(began))
}

/// The same on an XFS of the bench's own, with reflinks, if `mkfs.xfs` is there.
pub(super) async fn on_reflink(stage: &Stage) -> Result<Vec<Row>> {
    let row = Row::new("suspend of a woken 1 GiB that wrote 10 MiB, durable, on XFS with reflink", WITH_REFLINK);
    let disk = match reflink::Disk::make(stage)? {
        reflink::Made::Disk(disk) => disk,
        reflink::Made::Lacks(reason) => return Ok(vec![row.missing(reason)]),
    };
    let measured = async {
        ensure!(reflink::works_in(disk.path())?, "{} has no reflinks", disk.path().display());
        let peer = stage.peer(&disk.path().join("peer"))?;
        let data = disk.path().join("data");
        stage
            .with_daemon(&data, &[], async |daemon| {
                super::guest::warm(daemon).await?;
                woken(stage, daemon, &peer, "XFS with reflink", WITH_REFLINK).await
            })
            .await
    };
    let measured = measured.await;
    disk.remove()?;
    Ok(measured?.into())
}
