//! Spare hulls: made ahead of time, frozen, one step from a run.
//!
//! Only an optimisation: with none there everything works, slower. They are made one at a time, while nobody waits
//! for a hull of his own. A hull fits one image; the images used last have some.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dorm_lifecycle::{Digest, Resources};
use tokio::sync::Notify;

use crate::cgroup::{Cgroup, Limits};
use crate::engine::Shared;
use crate::error::{GvisorError, chain};
use crate::hull::{Hull, Order};
use crate::notes::{Duty, Note, Reach};
use crate::run::lock;

/// How many images have spare hulls at the same time.
const IMAGES: usize = 2;
/// How long nothing is tried after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The shelf, and what is wanted on it.
#[derive(Debug)]
pub(crate) struct Spares {
    of_each: usize,
    shelf: Mutex<Shelf>,
    /// How many hulls are being made for somebody who waits.
    busy: AtomicUsize,
    wake: Arc<Notify>,
    /// Held while a hull is being made for the shelf.
    filling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Shelf {
    ready: Vec<(Hull, Note)>,
    /// The images used last, the latest first.
    wanted: VecDeque<(Digest, std::path::PathBuf)>,
    is_closed: bool,
}

/// While it exists no spare hull is begun.
pub(crate) struct HoldBack<'a>(&'a Spares);

impl Drop for HoldBack<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
        self.0.wake.notify_one();
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl Spares {
    pub(crate) fn new(of_each: usize) -> Self {
        Self {
            of_each,
            shelf: Mutex::default(),
            busy: AtomicUsize::new(0),
            wake: Arc::default(),
            filling: tokio::sync::Mutex::default(),
        }
    }

    /// A hull that fits `order`, which is the caller's from now on.
    pub(crate) fn take(&self, order: &Order) -> Option<(Hull, Note)> {
        let mut shelf = lock(&self.shelf);
        let fits =
            |(_, note): &(Hull, Note)| note.is_for(&order.image, order.reach) && note.disk_bytes == order.disk_bytes;
        let at = shelf.ready.iter().position(fits)?;
        let taken = shelf.ready.swap_remove(at);
        drop(shelf);
        self.wake.notify_one();
        Some(taken)
    }

    /// Keeps hulls for `image` from now on, in place of the image used longest ago.
    pub(crate) fn want(&self, image: &Digest, rootfs: &std::path::Path) {
        let mut shelf = lock(&self.shelf);
        shelf.wanted.retain(|(known, _)| known != image);
        shelf.wanted.push_front((image.clone(), rootfs.to_owned()));
        shelf.wanted.truncate(IMAGES);
        drop(shelf);
        self.wake.notify_one();
    }

    pub(crate) fn hold_back(&self) -> HoldBack<'_> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        HoldBack(self)
    }

    /// How many hulls are ready for `image`.
    pub(crate) fn count(&self, image: &Digest) -> usize {
        lock(&self.shelf).ready.iter().filter(|(_, note)| note.image == image.as_str()).count()
    }

    /// Takes down all hulls; no more are made.
    pub(crate) async fn close(&self) -> Vec<(Hull, Note)> {
        lock(&self.shelf).is_closed = true;
        self.wake.notify_one();
        // The one in the making is removed by its maker.
        let _filling = self.filling.lock().await;
        std::mem::take(&mut lock(&self.shelf).ready)
    }

    fn missing(&self) -> Option<Order> {
        let shelf = lock(&self.shelf);
        if shelf.is_closed || self.busy.load(Ordering::SeqCst) > 0 {
            return None;
        }
        for (image, rootfs) in &shelf.wanted {
            for reach in [Reach::Networked, Reach::Alone] {
                let ready = shelf.ready.iter().filter(|(_, note)| note.is_for(image, reach)).count();
                if ready < self.of_each {
                    let resources = Resources::default();
                    return Some(Order {
                        image: image.clone(),
                        rootfs: rootfs.clone(),
                        reach,
                        disk_bytes: resources.disk_bytes,
                        limits: Limits::for_guest(&resources),
                    });
                }
            }
        }
        None
    }

    /// Hulls of images that are no longer among those used last.
    fn unwanted(&self) -> Vec<(Hull, Note)> {
        let mut shelf = lock(&self.shelf);
        let Shelf { ready, wanted, .. } = &mut *shelf;
        let unwanted = |(_, note): &mut (Hull, Note)| !wanted.iter().any(|(image, _)| image.as_str() == note.image);
        ready.extract_if(.., unwanted).collect()
    }

    /// Puts a hull on the shelf; gives it back when the shelf is closed.
    #[must_use]
    fn put(&self, hull: Hull, note: Note) -> Option<Hull> {
        let mut shelf = lock(&self.shelf);
        if shelf.is_closed {
            return Some(hull);
        }
        shelf.ready.push((hull, note));
        None
    }

    fn is_closed(&self) -> bool {
        lock(&self.shelf).is_closed
    }
}

/// Keeps the shelf full as long as the engine lives.
pub(crate) async fn keep_filled(engine: Weak<Shared>) {
    loop {
        let Some(shared) = engine.upgrade() else { return };
        if shared.spares.is_closed() {
            return;
        }
        for (hull, _) in shared.spares.unwanted() {
            if let Err(error) = shared.host.destroy(&hull.home).await {
                tracing::warn!(hull = hull.home.id(), error = %chain(&error), "a spare hull was left behind; sweep will clear it");
            }
        }
        let outcome = match shared.spares.missing() {
            Some(order) => fill_one(&shared, &order).await,
            None => {
                let wake = shared.spares.wake.clone();
                // Waiting must not keep the engine alive.
                drop(shared);
                wake.notified().await;
                continue;
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(error = %chain(&error), "no spare hull could be made; runs begin slower");
            drop(shared);
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}

async fn fill_one(shared: &Arc<Shared>, order: &Order) -> Result<(), GvisorError> {
    let _filling = shared.spares.filling.lock().await;
    let (hull, note) = shared.host.make(order, Duty::Spare).await?;
    if let Err(error) = hull.group(Cgroup::freeze).await {
        shared.host.destroy(&hull.home).await?;
        return Err(error);
    }
    shared.host.reach("gvisor: spare hull ready")?;
    if let Some(hull) = shared.spares.put(hull, note) {
        shared.host.destroy(&hull.home).await?;
    }
    Ok(())
}
