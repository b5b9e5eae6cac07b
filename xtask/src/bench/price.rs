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

/// Measures by the clock of the guest, beside a guest that `runsc restore` restored. One sandbox is
/// written in order alone, so that its memory is one piece of an image whenever it wakes. Scattered
/// writes cut that of the other into parts.
pub(super) async fn price(stage: &Stage, daemon: &Daemon, peer: &Peer) -> Result<Vec<Row>> {
    let whole = filled(daemon, "price", MIB).await?;
    let cut = filled(daemon, "price-cut", MIB).await?;
    let mut rows = [
        (&whole, Word::Order, Row::noted("after a wake of 256 MiB: a byte to every page, in order", ORDER_MS)),
        (&cut, Word::Scattered, Row::noted("after a wake of 256 MiB: 5,000 scattered first writes", SCATTERED_MS)),
        (&cut, Word::Order, Row::shown("a byte to every page, in order, after a suspend that followed these")),
        (&whole, Word::Read, Row::shown("after a wake of 256 MiB: reading every page")),
    ];
    peer.fill("price", MIB)?;
    peer.checkpoint("price")?;
    for round in 0..stage.rounds(5) {
        eprintln!("bench: the price of a wake, round {}", round + 1);
        for (id, word, row) in &mut rows {
            put_on_disk(daemon, id).await?;
            resume(daemon, id).await?;
            row.ours.push(tell(daemon, id, *word).await?);
            peer.restore("price")?;
            row.peer.push(peer.tell("price", *word)?);
            peer.delete_all(&["price".to_owned()]);
        }
    }
    peer.end("price");
    for id in [&whole, &cut] {
        daemon.act(id, "terminate").await?;
    }
    Ok(rows.map(|(_, _, row)| row).to_vec())
}
