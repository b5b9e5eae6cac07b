//! Spare hulls: made ahead of time, frozen, one step from a run.
//!
//! Only an optimisation: with none there everything works, slower. They are made one at a time, while nobody waits
//! for a hull of his own. A hull fits one image; the images used last have some.
//!
//! In a booted one the agent runs already and waits frozen for who it is to be: a start only lets it go on. An empty
//! one can be filled from an image as well.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dorm_lifecycle::{Digest, Resources};
use tokio::sync::Notify;

use crate::cgroup::{Cgroup, Limits, Precedence};
use crate::engine::Shared;
use crate::error::{GvisorError, chain};
use crate::hull::{Hull, Order, in_place};
use crate::notes::{Duty, Note, Reach};
use crate::run::lock;

/// How many images have spare hulls at the same time.
const IMAGES: usize = 2;
/// How many uses of images are remembered, to tell which are used most.
const REMEMBERED: usize = 16;
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

/// How far a spare hull is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Nothing runs in it.
    Empty,
    /// Its agent has answered.
    Booted,
}

/// A hull on the shelf.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) hull: Hull,
    pub(crate) note: Note,
    pub(crate) progress: Progress,
}

/// What is kept of each image. Sandboxes without a network are rare.
const KINDS: [(Reach, Progress); 3] =
    [(Reach::Networked, Progress::Booted), (Reach::Networked, Progress::Empty), (Reach::Alone, Progress::Empty)];

#[derive(Debug, Default)]
struct Shelf {
    ready: Vec<Spare>,
    /// The images for which hulls are kept.
    wanted: VecDeque<(Digest, std::path::PathBuf)>,
    /// What runs began with, the latest first.
    used: VecDeque<Digest>,
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

    /// A hull that fits `order`, which is the caller's from now on; one of `progress` if there is any, else an empty one.
    pub(crate) fn take(&self, order: &Order, progress: Progress) -> Option<Spare> {
        // They are of the newest build.
        if order.build.is_some() {
            return None;
        }
        let mut shelf = lock(&self.shelf);
        let find = |progress| {
            shelf.ready.iter().position(|spare| {
                spare.progress == progress
                    && spare.note.is_for(&order.root, order.reach)
                    && spare.note.disk_bytes == order.disk_bytes
            })
        };
        let at = find(progress).or_else(|| find(Progress::Empty))?;
        let taken = shelf.ready.swap_remove(at);
        drop(shelf);
        self.wake.notify_one();
        Some(taken)
    }

    /// Keeps hulls for `image` from now on, in place of the image for which that was asked longest ago.
    pub(crate) fn want(&self, image: &Digest, rootfs: &std::path::Path) {
        let mut shelf = lock(&self.shelf);
        shelf.wanted.retain(|(known, _)| known != image);
        shelf.wanted.push_front((image.clone(), rootfs.to_owned()));
        shelf.wanted.truncate(IMAGES);
        drop(shelf);
        self.wake.notify_one();
    }

    /// Notes that a run begins with `image`. One that is used more than what hulls are kept for takes the place of the
    /// least used of those; images that are used in turns do not drive each other out.
    pub(crate) fn used(&self, image: &Digest, rootfs: &std::path::Path) {
        let mut shelf = lock(&self.shelf);
        shelf.used.push_front(image.clone());
        shelf.used.truncate(REMEMBERED);
        let Shelf { wanted, used, .. } = &mut *shelf;
        let times = |image: &Digest| used.iter().filter(|used| *used == image).count();
        if wanted.is_empty() || wanted.iter().any(|(known, _)| known == image) {
            return;
        }
        let least = (0..wanted.len()).min_by_key(|at| wanted.get(*at).map_or(0, |(known, _)| times(known)));
        let least = least.filter(|_| wanted.len() >= IMAGES);
        let before = least.and_then(|at| wanted.get(at)).map_or(0, |(known, _)| times(known));
        // Of images that are used in turns one is always ahead of the others by one.
        if times(image) < before + 2 {
            return;
        }
        if let Some(at) = least {
            wanted.remove(at);
        }
        wanted.push_front((image.clone(), rootfs.to_owned()));
        drop(shelf);
        self.wake.notify_one();
    }

    pub(crate) fn hold_back(&self) -> HoldBack<'_> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        HoldBack(self)
    }

    /// How many hulls are ready for `image`.
    pub(crate) fn count(&self, image: &Digest) -> usize {
        lock(&self.shelf).ready.iter().filter(|spare| spare.note.image == image.as_str()).count()
    }

    /// Takes down all hulls; no more are made.
    pub(crate) async fn close(&self) -> Vec<Spare> {
        lock(&self.shelf).is_closed = true;
        self.wake.notify_one();
        // The one in the making is removed by its maker.
        let _filling = self.filling.lock().await;
        std::mem::take(&mut lock(&self.shelf).ready)
    }

    fn missing(&self) -> Option<(Order, Progress)> {
        let shelf = lock(&self.shelf);
        if shelf.is_closed || self.busy.load(Ordering::SeqCst) > 0 {
            return None;
        }
        for (image, rootfs) in &shelf.wanted {
            for (reach, progress) in KINDS {
                let fits = |spare: &&Spare| spare.progress == progress && spare.note.is_for(image.as_str(), reach);
                if shelf.ready.iter().filter(fits).count() < self.of_each {
                    let resources = Resources::default();
                    let order = Order {
                        root: image.as_str().to_owned(),
                        rootfs: rootfs.clone(),
                        layers: Vec::new(),
                        reach,
                        disk_bytes: resources.disk_bytes,
                        // Whoever is at work goes first.
                        limits: Limits { precedence: Precedence::Last, ..Limits::for_guest(&resources) },
                        build: None,
                    };
                    return Some((order, progress));
                }
            }
        }
        None
    }

    /// Hulls of images for which none are kept any more, or that have been removed.
    fn unwanted(&self) -> Vec<Spare> {
        let mut shelf = lock(&self.shelf);
        let Shelf { ready, wanted, .. } = &mut *shelf;
        wanted.retain(|(_, rootfs)| is_directory(rootfs));
        let unwanted = |spare: &mut Spare| !wanted.iter().any(|(image, _)| image.as_str() == spare.note.image);
        ready.extract_if(.., unwanted).collect()
    }

    /// Puts a hull on the shelf; gives it back when the shelf is closed.
    #[must_use]
    fn put(&self, spare: Spare) -> Option<Spare> {
        let mut shelf = lock(&self.shelf);
        if shelf.is_closed {
            return Some(spare);
        }
        shelf.ready.push(spare);
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
        for Spare { hull, .. } in in_place(|| shared.spares.unwanted()) {
            if let Err(error) = shared.host.destroy(&hull.home).await {
                tracing::warn!(hull = hull.home.id(), error = %chain(&error), "a spare hull was left behind; sweep will clear it");
            }
        }
        let outcome = match shared.spares.missing() {
            // Its image may be removed meanwhile: then nobody misses it.
            Some((order, progress)) => {
                let filled = fill_one(&shared, &order, progress).await;
                if in_place(|| is_directory(&order.rootfs)) { filled } else { Ok(()) }
            }
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

#[allow(clippy::disallowed_methods, reason = "it is called in place")]
fn is_directory(path: &std::path::Path) -> bool {
    path.is_dir()
}

async fn fill_one(shared: &Arc<Shared>, order: &Order, progress: Progress) -> Result<(), GvisorError> {
    let _filling = shared.spares.filling.lock().await;
    let (hull, note) = shared.host.make(order, Duty::Spare).await?;
    if let Err(error) = prepare(shared, &hull, progress).await {
        shared.host.destroy(&hull.home).await?;
        return Err(error);
    }
    shared.host.reach("gvisor: spare hull ready")?;
    if let Some(Spare { hull, .. }) = shared.spares.put(Spare { hull, note, progress }) {
        shared.host.destroy(&hull.home).await?;
    }
    Ok(())
}

async fn prepare(shared: &Arc<Shared>, hull: &Hull, progress: Progress) -> Result<(), GvisorError> {
    if progress == Progress::Booted {
        let booted = async {
            hull.control.start(hull.home.id()).await?;
            shared.greet(hull, 0).await
        };
        tokio::select! {
            booted = booted => booted?,
            () = hull.processes.sandbox.ended() => {
                return Err(hull.died());
            }
        }
    }
    hull.group(Cgroup::freeze).await
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn image(letter: char) -> Digest {
        letter.to_string().repeat(64).parse().unwrap()
    }

    fn kept(spares: &Spares) -> Vec<char> {
        let mut kept: Vec<_> =
            lock(&spares.shelf).wanted.iter().filter_map(|(image, _)| image.as_str().chars().next()).collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn hulls_are_kept_for_the_images_that_are_used_most() {
        let spares = Spares::new(1);
        let rootfs = Path::new("/");
        spares.used(&image('a'), rootfs);
        spares.used(&image('a'), rootfs);
        assert_eq!(kept(&spares), [], "nothing is kept before anything is prepared");
        for letter in ['b', 'c'] {
            spares.want(&image(letter), rootfs);
        }
        spares.used(&image('d'), rootfs);
        assert_eq!(kept(&spares), ['b', 'c'], "once is not often");
        spares.used(&image('b'), rootfs);
        spares.used(&image('d'), rootfs);
        assert_eq!(kept(&spares), ['b', 'd'], "the one that nobody uses goes");
        for _ in 0..5 {
            ['b', 'd', 'e'].into_iter().for_each(|letter| spares.used(&image(letter), rootfs));
        }
        assert_eq!(kept(&spares), ['b', 'd'], "images that are used in turns stay what they are");
        (0..REMEMBERED).for_each(|_| spares.used(&image('e'), rootfs));
        assert!(kept(&spares).contains(&'e'));
    }
}
