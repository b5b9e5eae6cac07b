//! The later cost of a wake: first writes, and reading everything.

use anyhow::Result;
use dorm_testing::Daemon;

use super::guest::{Word, filled, put_on_disk, resume, tell};
use super::peer::Peer;
use super::rows::Row;
use super::stage::Stage;

const MIB: u64 = 256;
/// Limits of the times, which are noted.
const ORDER_MS: f64 = 150.0;
const SCATTERED_MS: f64 = 500.0;

/// Measures by the clock of the guest, beside a guest that `runsc restore` restored.
pub(super) async fn price(stage: &Stage, daemon: &Daemon, peer: &Peer) -> Result<Vec<Row>> {
    let mut rows = [
        (Word::Order, Row::noted("after a wake of 256 MiB: a byte to every page, in order", ORDER_MS)),
        (Word::Scattered, Row::noted("after a wake of 256 MiB: 5,000 scattered first writes", SCATTERED_MS)),
        (Word::Read, Row::shown("after a wake of 256 MiB: reading every page")),
    ];
    let id = filled(daemon, "price", MIB).await?;
    peer.fill("price", MIB)?;
    peer.checkpoint("price")?;
    for round in 0..stage.rounds(5) {
        eprintln!("bench: the price of a wake, round {}", round + 1);
        for (word, row) in &mut rows {
            put_on_disk(daemon, &id).await?;
            resume(daemon, &id).await?;
            row.ours.push(tell(daemon, &id, *word).await?);
            peer.restore("price")?;
            row.peer.push(peer.tell("price", *word)?);
            peer.delete_all(&["price".to_owned()]);
        }
    }
    peer.end("price");
    daemon.act(&id, "terminate").await?;
    Ok(rows.map(|(_, row)| row).to_vec())
}
