//! Containers for runs that were announced, such as the children of a fork.
//!
//! ```text
//! begin ─► complete ─► ready ─► a run takes it
//!                        └────► end: removed
//! ```
//!
//! Like the warm pool, this is only an optimisation. A run for which no container is ready takes
//! over one that nobody has begun to create, or waits for one that is nearly complete. The notes of
//! these containers are those of warm ones, so the next daemon removes what this one leaves.
//!
//! This module does not know how containers are created, nor when.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::blocking::in_place;
use crate::container::Order;
use crate::error::chain;
use crate::host::Host;
use crate::lock::lock;
use crate::warm_pool::WarmContainer;

/// The maximum number of containers that are created ahead for one kind of run.
const READY_MAX: usize = 64;
/// The maximum number that is kept after the runs.
const KEPT_MAX: usize = 10;

/// The kinds of runs that are announced, or were a short time ago.
#[derive(Default)]
pub(crate) struct Expected(Mutex<Batches>);

#[derive(Default)]
struct Batches {
    living: Vec<Arc<Batch>>,
    is_closed: bool,
}

/// The containers for one kind of run.
pub(crate) struct Batch {
    pub(crate) order: Order,
    /// The directory of the root file system. An image that was removed and imported again has
    /// another one, and old containers would still show the old.
    rootfs: Option<(u64, u64)>,
    state: Mutex<State>,
    /// Notified when a container is ready or will never be, and at the end of work.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// How many announcements are not over.
    announced: usize,
    /// The number of all announcements so far.
    announcements: u64,
    /// The number of runs in the latest one.
    count: usize,
    /// How many containers nobody has begun to create.
    open: usize,
    /// How many are being created.
    begun: usize,
    /// How many tasks are creating or removing some.
    working: usize,
    /// The oldest first.
    ready: VecDeque<WarmContainer>,
    /// How many runs wait for one that is being created.
    waiting: usize,
    has_ended: bool,
}

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn directory(order: &Order) -> Option<(u64, u64)> {
    let facts = in_place(|| std::fs::metadata(&order.rootfs));
    facts.ok().map(|facts| (facts.dev(), facts.ino()))
}

impl Batch {
    fn fits(&self, order: &Order) -> bool {
        (&self.order.root, self.order.reach(), self.order.disk_bytes, &self.order.build, &self.order.agent)
            == (&order.root, order.reach(), order.disk_bytes, &order.build, &order.agent)
    }

    /// Adds an announcement; returns `false` if it is of another kind, or if this has ended.
    fn announce(&self, order: &Order, count: usize) -> bool {
        let mut state = lock(&self.state);
        if !self.fits(order) || state.has_ended {
            return false;
        }
        state.announced += 1;
        state.announcements += 1;
        state.count = count;
        let there = state.ready.len() + state.begun;
        state.open = state.open.max(count.min(READY_MAX).saturating_sub(there));
        true
    }

    /// Ends an announcement. If it was the last, returns how many there have been, and what is not
    /// kept; its removal counts as work.
    pub(crate) fn end_announcement(&self) -> Option<(u64, Vec<WarmContainer>)> {
        let mut state = lock(&self.state);
        state.announced -= 1;
        if state.announced > 0 || state.has_ended {
            return None;
        }
        let kept = state.count.min(KEPT_MAX);
        state.open = kept.saturating_sub(state.ready.len() + state.begun);
        state.working += 1;
        let surplus = state.ready.len().saturating_sub(kept);
        Some((state.announcements, state.ready.drain(..surplus).collect()))
    }

    /// Reserves one container for creation, which counts as work.
    pub(crate) fn begin(&self) -> bool {
        let mut state = lock(&self.state);
        if state.has_ended || state.open == 0 {
            return false;
        }
        (state.open, state.begun, state.working) = (state.open - 1, state.begun + 1, state.working + 1);
        true
    }

    /// Ends the creation of a container; returns it if it is not needed any more.
    pub(crate) fn complete(&self, made: Option<WarmContainer>) -> Option<WarmContainer> {
        let mut state = lock(&self.state);
        state.begun -= 1;
        let surplus = match made {
            Some(container) if !state.has_ended => {
                state.ready.push_back(container);
                None
            }
            other => other,
        };
        drop(state);
        self.changed.notify_waiters();
        surplus
    }

    /// Destroys containers, and ends the work that this was.
    pub(crate) async fn remove(&self, host: &Host, containers: Vec<WarmContainer>) {
        for WarmContainer { container, .. } in containers {
            if let Err(error) = host.destroy(&container.home).await {
                tracing::warn!(container = container.home.id(), error = %chain(&error), "cannot remove a container that no run has taken; the next start removes it");
            }
        }
        lock(&self.state).working -= 1;
        self.changed.notify_waiters();
    }

    /// Waits until no task creates or removes a container.
    pub(crate) async fn settled(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if lock(&self.state).working == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Takes a container, or waits for one that is being created. `None` if the caller has to
    /// create its own.
    async fn wait(&self) -> Option<WarmContainer> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = lock(&self.state);
                if let Some(container) = state.ready.pop_front() {
                    return Some(container);
                }
                if state.open > 0 {
                    state.open -= 1;
                    return None;
                }
                if state.has_ended || state.begun <= state.waiting {
                    return None;
                }
                state.waiting += 1;
            }
            changed.await;
            lock(&self.state).waiting -= 1;
        }
    }

    /// Lets no run have a container from now on, and returns those that are ready; their removal
    /// counts as work.
    pub(crate) fn close(&self) -> Vec<WarmContainer> {
        self.close_locked(&mut lock(&self.state))
    }

    /// The same, unless there was another announcement since the first `announcements`.
    pub(crate) fn close_unless_announced(&self, announcements: u64) -> Option<Vec<WarmContainer>> {
        let mut state = lock(&self.state);
        let is_over = state.announcements == announcements && !state.has_ended;
        is_over.then(|| self.close_locked(&mut state))
    }

    fn close_locked(&self, state: &mut State) -> Vec<WarmContainer> {
        state.has_ended = true;
        state.open = 0;
        state.working += 1;
        std::mem::take(&mut state.ready).into()
    }
}

impl Expected {
    /// Adds an announcement of `count` runs; none if no more containers may be created.
    pub(crate) fn announce(&self, order: Order, count: usize) -> Option<Arc<Batch>> {
        let rootfs = directory(&order);
        let mut batches = lock(&self.0);
        if batches.is_closed {
            return None;
        }
        let known = batches.living.iter().find(|batch| batch.rootfs == rootfs && batch.announce(&order, count));
        if let Some(known) = known {
            return Some(known.clone());
        }
        let batch = Arc::new(Batch { order, rootfs, state: Mutex::default(), changed: Notify::new() });
        batch.announce(&batch.order, count);
        batches.living.push(batch.clone());
        Some(batch)
    }

    /// Forgets a kind of run that has ended.
    pub(crate) fn forget(&self, ended: &Arc<Batch>) {
        lock(&self.0).living.retain(|batch| !Arc::ptr_eq(batch, ended));
    }

    /// Accepts no announcement from now on, and returns all kinds.
    pub(crate) fn close(&self) -> Vec<Arc<Batch>> {
        let mut batches = lock(&self.0);
        batches.is_closed = true;
        batches.living.clone()
    }

    /// Returns how many containers are ready for the runs of an image.
    pub(crate) fn count(&self, root: &str) -> usize {
        let batches = lock(&self.0);
        let of_image = batches.living.iter().filter(|batch| batch.order.root == root);
        of_image.map(|batch| lock(&batch.state).ready.len()).sum()
    }

    fn fitting(&self, order: &Order) -> Vec<Arc<Batch>> {
        let fitting: Vec<_> = lock(&self.0).living.iter().filter(|batch| batch.fits(order)).cloned().collect();
        if fitting.is_empty() {
            return fitting;
        }
        let rootfs = directory(order);
        fitting.into_iter().filter(|batch| batch.rootfs == rootfs).collect()
    }

    /// Takes a container that is ready and fits `order`.
    pub(crate) fn ready(&self, order: &Order) -> Option<WarmContainer> {
        self.fitting(order).iter().find_map(|batch| lock(&batch.state).ready.pop_front())
    }

    /// Takes a container that fits `order`; waits for it if one is being created that no other run
    /// waits for.
    pub(crate) async fn wait(&self, order: &Order) -> Option<WarmContainer> {
        for batch in self.fitting(order) {
            if let Some(container) = batch.wait().await {
                return Some(container);
            }
        }
        None
    }
}
