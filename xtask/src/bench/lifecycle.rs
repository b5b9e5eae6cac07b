//! Create, exec, and resume while the memory is still held.

use std::time::{Duration, Instant};

use anyhow::Result;
use dorm_testing::Daemon;

use super::guest::{answers, fill, first_exec, is_in, resume};
use super::millis;
use super::peer::Peer;
use super::rows::{Row, Unit};
use super::stage::{Stage, cpu_ms_of, resident_mib};

const EXECS: usize = 5;
const MIB: u64 = 256;

/// Compares with `runsc run`, `runsc exec` and `runsc restore`.
pub(super) async fn lifecycle(stage: &Stage, daemon: &Daemon, peer: &Peer) -> Result<Vec<Row>> {
    let mut create = Row::new("create to first exec; runsc run and exec", 0.25);
    let mut exec = Row::new("exec of true; runsc exec", 0.4);
    let mut parked = Row::new("resume of a parked 256 MiB to first exec; runsc restore", 0.12);
    for round in 0..stage.rounds(7) {
        eprintln!("bench: lifecycle, round {}", round + 1);
        let (id, took) = first_exec(daemon, round).await?;
        create.ours.push(took);
        create.peer.push(peer.first_exec("life")?);
        for _ in 0..EXECS {
            let began = Instant::now();
            answers(daemon, &id).await?;
            exec.ours.push(millis(began));
            exec.peer.push(peer.exec("life")?);
        }
        peer.end("life");
        fill(daemon, &id, MIB).await?;
        peer.fill("life", MIB)?;
        is_in(daemon, &id, "suspend", "parked").await?;
        parked.ours.push(resume(daemon, &id).await?);
        daemon.act(&id, "terminate").await?;
        peer.checkpoint("life")?;
        parked.peer.push(peer.restore("life")?);
        peer.end("life");
    }
    Ok(vec![create, exec, parked])
}

/// Returns what the daemon itself uses while it is idle.
pub(super) async fn idle(daemon: &Daemon) -> Result<Vec<Row>> {
    let pid = daemon.pid();
    let mut memory = Row::at_most("memory of the idle daemon", 60.0).unit(Unit::Mib);
    let mut cpu = Row::shown("CPU of the idle daemon").unit(Unit::CpuMs);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, began) = (cpu_ms_of(pid)?, Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    cpu.ours.push((cpu_ms_of(pid)? - before) / began.elapsed().as_secs_f64());
    // Not before: it is idle only then.
    memory.ours.push(resident_mib(pid)?);
    Ok(vec![memory, cpu])
}
