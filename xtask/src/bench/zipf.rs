//! Traffic to more sandboxes than have room: few of them get most of the requests, as a Zipf
//! distribution says. A client that finds no room suspends the sandbox that was used longest ago.

use std::time::Instant;

use anyhow::{Result, bail};
use dorm_testing::Daemon;
use futures_util::future::try_join_all;
use reqwest::Method;
use serde_json::json;
use tokio::sync::{Mutex, Notify};

use super::guest::{answers, filled, limit_of, warm};
use super::millis;
use super::rows::{Row, Unit, quantile};
use super::stage::{Groups, Stage};

const SANDBOXES: usize = 60;
const ROOM: usize = 20;
const CLIENTS: usize = 4;
const EXPONENT: f64 = 1.1;
const MIB: u64 = 64;
/// The slowest hundredth of the wakes, in milliseconds.
const SLOWEST_MS: f64 = 400.0;

/// Measures wakes under traffic, once with parked sandboxes, as a daemon keeps them by default, and
/// once with all suspended ones only on disk.
pub(super) async fn zipf(stage: &Stage) -> Result<Vec<Row>> {
    let requests = if stage.short { 500 } else { 1000 };
    let budget = ROOM as u64 * (limit_of(MIB) >> 20);
    // By default, parked sandboxes may hold a quarter of the memory of a host. Here that is a host
    // which has just the room for the running ones.
    let parked = ["--park-memory-mib", &(budget / 4).to_string()].map(str::to_owned);
    let on_disk = ["--park-count", "0"].map(str::to_owned);
    let (parked, held) = traffic(stage, "zipf-parked", budget, &parked, requests).await?;
    let (on_disk, _) = traffic(stage, "zipf-disk", budget, &on_disk, requests).await?;
    let peer = stage.peer(&stage.path("peer-zipf"))?;
    peer.fill("zipf", MIB)?;
    peer.checkpoint("zipf")?;
    let restores = (0..stage.rounds(7)).map(|_| peer.restore("zipf")).collect::<Result<Vec<_>>>()?;
    let mut all = rows("with room for", requests, &parked, &restores)?;
    let mut memory =
        Row::shown(name("with room for", "memory of all sandboxes and the daemon, without page cache")).unit(Unit::Mib);
    memory.ours.push(held);
    all.push(memory);
    all.extend(rows("all on disk, with room for", requests, &on_disk, &restores)?);
    Ok(all)
}

/// Sends the requests to a daemon with room for the running sandboxes. Returns what the clients
/// saw, and the memory that was used at the end, in MiB.
async fn traffic(
    stage: &Stage,
    directory: &str,
    budget_mib: u64,
    options: &[String],
    requests: usize,
) -> Result<(State, f64)> {
    let budget = budget_mib.to_string();
    let mut all = vec!["--memory-budget-mib", &budget];
    all.extend(options.iter().map(String::as_str));
    stage
        .with_daemon(&stage.path(directory), &all, async |daemon| {
            warm(daemon).await?;
            eprintln!("bench: {SANDBOXES} sandboxes of {MIB} MiB");
            let mut ids = Vec::new();
            for number in 0..SANDBOXES {
                let id = filled(daemon, &format!("zipf{number}"), MIB).await?;
                daemon.act(&id, "suspend").await?;
                ids.push(id);
            }
            eprintln!("bench: {requests} requests of {CLIENTS} clients");
            let traffic = Traffic::new(ids, requests);
            try_join_all((0..CLIENTS).map(|_| traffic.client(daemon))).await?;
            let (held, _) = Groups::of(daemon)?.memory_mib()?;
            Ok((traffic.state.into_inner(), held))
        })
        .await
}

fn name(which: &str, what: &str) -> String {
    format!("traffic to {SANDBOXES} sandboxes, {which} {ROOM}: {what}")
}

fn rows(which: &str, requests: usize, traffic: &State, restores: &[f64]) -> Result<Vec<Row>> {
    if traffic.wakes.is_empty() {
        bail!("no request of the traffic woke a sandbox");
    }
    let mut half = Row::shown(name(which, "wake, median; runsc restore alone"));
    half.ours.clone_from(&traffic.wakes);
    half.peer = restores.to_vec();
    let mut slowest = Row::noted(name(which, "wake, 99 of 100"), SLOWEST_MS);
    slowest.ours.push(quantile(&traffic.wakes, 0.99));
    let mut whole = Row::shown(name(which, "wake and making room for it, 99 of 100"));
    whole.ours.push(quantile(&traffic.requests, 0.99));
    let mut wakes = Row::shown(name(which, &format!("wakes of {requests} requests"))).unit(Unit::Count);
    wakes.ours.push(traffic.wakes.len() as f64);
    let mut refused = Row::at_most(name(which, "refused although there was room"), 0.0).unit(Unit::Count);
    refused.ours.push(traffic.refused as f64);
    Ok(vec![half, slowest, whole, wakes, refused])
}

/// One sandbox, as the clients know it.
#[derive(Clone, Default)]
struct Seen {
    /// It runs, or is being resumed or suspended, and so takes room.
    takes_room: bool,
    /// It is being resumed or suspended.
    changes: bool,
    users: usize,
    /// The number of the request that used it last.
    used: usize,
}

#[derive(Default)]
struct State {
    sandboxes: Vec<Seen>,
    next: usize,
    wakes: Vec<f64>,
    requests: Vec<f64>,
    refused: usize,
}

struct Traffic {
    ids: Vec<String>,
    /// The sandbox of each request.
    targets: Vec<usize>,
    state: Mutex<State>,
    changed: Notify,
}

/// The next step of a client for its request.
enum Next {
    Use,
    Wake,
    Suspend(usize),
    Wait,
}

impl Traffic {
    fn new(ids: Vec<String>, requests: usize) -> Self {
        let state = State { sandboxes: vec![Seen::default(); ids.len()], ..State::default() };
        let targets = targets(ids.len(), requests);
        Self { ids, targets, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Sends one request after another until all have been sent.
    async fn client(&self, daemon: &Daemon) -> Result<()> {
        loop {
            let request = {
                let mut state = self.state.lock().await;
                state.next += 1;
                state.next - 1
            };
            let Some(target) = self.targets.get(request) else { return Ok(()) };
            self.request(daemon, request, *target).await?;
        }
    }

    async fn request(&self, daemon: &Daemon, request: usize, target: usize) -> Result<()> {
        let began = Instant::now();
        let mut woke = false;
        loop {
            let changed = self.changed.notified();
            let next = self.state.lock().await.next(target);
            match next {
                Next::Use => break,
                Next::Wait => changed.await,
                Next::Suspend(victim) => {
                    daemon.act(&self.ids[victim], "suspend").await?;
                    self.state.lock().await.sandboxes[victim] = Seen::default();
                    self.changed.notify_waiters();
                }
                Next::Wake => {
                    let took = wake(daemon, &self.ids[target]).await?;
                    let mut state = self.state.lock().await;
                    state.sandboxes[target].changes = false;
                    match took {
                        Some(took) => state.wakes.push(took),
                        None => {
                            state.refused += 1;
                            state.sandboxes[target] = Seen::default();
                            drop(state);
                            self.changed.notify_waiters();
                            return Ok(());
                        }
                    }
                    woke = true;
                    state.sandboxes[target].users += 1;
                    break;
                }
            }
        }
        self.changed.notify_waiters();
        if !woke {
            answers(daemon, &self.ids[target]).await?;
        }
        let mut state = self.state.lock().await;
        let seen = &mut state.sandboxes[target];
        seen.users -= 1;
        seen.used = request;
        if woke {
            state.requests.push(millis(began));
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }
}

impl State {
    /// Decides, and records what was decided.
    fn next(&mut self, target: usize) -> Next {
        let seen = &mut self.sandboxes[target];
        if seen.changes {
            return Next::Wait;
        }
        if seen.takes_room {
            seen.users += 1;
            return Next::Use;
        }
        if self.sandboxes.iter().filter(|seen| seen.takes_room).count() < ROOM {
            self.sandboxes[target] = Seen { takes_room: true, changes: true, ..Seen::default() };
            return Next::Wake;
        }
        let idle =
            self.sandboxes.iter().enumerate().filter(|(_, seen)| seen.takes_room && !seen.changes && seen.users == 0);
        let Some((oldest, _)) = idle.min_by_key(|(_, seen)| seen.used) else { return Next::Wait };
        self.sandboxes[oldest].changes = true;
        Next::Suspend(oldest)
    }
}

/// Resumes a sandbox, and returns after how long it had answered an exec, or `None` if the daemon
/// refused.
async fn wake(daemon: &Daemon, id: &str) -> Result<Option<f64>> {
    let began = Instant::now();
    let answer = daemon.try_ask(Method::POST, &format!("/sandboxes/{id}/resume"), Some(json!({}))).await?;
    match answer.status {
        200..=299 => {}
        _ if answer.body["code"] == "no_room" => {
            eprintln!("bench: a wake was refused: {}", answer.body["detail"]);
            return Ok(None);
        }
        status => bail!("resume of {id}: {status}: {}", answer.body),
    }
    answers(daemon, id).await?;
    Ok(Some(millis(began)))
}

/// Returns the sandbox of each request: the same in each bench.
fn targets(sandboxes: usize, requests: usize) -> Vec<usize> {
    let weights: Vec<f64> = (1..=sandboxes).map(|rank| (rank as f64).powf(-EXPONENT)).collect();
    let sum: f64 = weights.iter().sum();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut target = || {
        // A xorshift generator, whose 53 upper bits are a number from 0 to 1.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut left = (random >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        let found = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        found.unwrap_or(sandboxes - 1)
    };
    (0..requests).map(|_| target()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sandbox_gets_most_requests_and_the_last_few() {
        let targets = targets(60, 10_000);
        let count = |which: usize| targets.iter().filter(|target| **target == which).count();
        // Of all weights, the first has 0.27 and the last 0.003.
        assert!((2000..3500).contains(&count(0)), "{}", count(0));
        assert!(count(59) < 100, "{}", count(59));
    }

    #[test]
    fn a_sandbox_that_is_used_is_not_suspended_for_another() {
        let mut state = State { sandboxes: vec![Seen::default(); ROOM + 1], ..State::default() };
        for target in 0..ROOM {
            assert!(matches!(state.next(target), Next::Wake));
            state.sandboxes[target].changes = false;
            state.sandboxes[target].users = 1;
        }
        assert!(matches!(state.next(ROOM), Next::Wait));
        state.sandboxes[7].users = 0;
        assert!(matches!(state.next(ROOM), Next::Suspend(7)));
        state.sandboxes[7] = Seen::default();
        assert!(matches!(state.next(ROOM), Next::Wake));
    }
}
