//! The pool of warm containers, which are created ahead of time and frozen, one step from a run.
//!
//! It is only an optimisation: without warm containers everything works, but slower. They are
//! created one at a time, while no run waits for a container. A container fits one image and one
//! size of disk; there are some for each of the pairs used most.
//!
//! In a booted one the agent already runs and waits, frozen, for its identity: a start only resumes
//! it. An empty one can also be restored from a memory image.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dorm_cgroup::{Limits, Precedence};
use dorm_lifecycle::{Digest, Egress, Resources};
use tokio::sync::Notify;

use crate::container::{Container, Order, is_directory};
use crate::limits;
use crate::lock::lock;
use crate::notes::{Note, Reach};

/// How many pairs of image and size of disk have warm containers at the same time.
const BASES: usize = 2;
/// How many uses are remembered, to determine the pairs used most.
const REMEMBERED: usize = 16;

/// The facts about a container that cannot be changed after it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    pub(crate) image: Digest,
    pub(crate) disk_bytes: u64,
}

impl Base {
    fn fits(&self, note: &Note) -> bool {
        note.is_for(self.image.as_str(), self.disk_bytes)
    }
}

/// The pool, and what it serves.
#[derive(Debug)]
pub(crate) struct WarmPool {
    of_each: usize,
    pool: Mutex<Pool>,
    /// How many containers are being created for waiting runs.
    busy: AtomicUsize,
    pub(crate) wake: Arc<Notify>,
    /// Held while a container is being created for the pool.
    pub(crate) filling: tokio::sync::Mutex<()>,
}

/// How far a warm container has progressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// No process runs in it.
    Empty,
    /// Its agent has answered.
    Booted,
}

/// A container in the pool.
#[derive(Debug)]
pub(crate) struct WarmContainer {
    pub(crate) container: Container,
    pub(crate) note: Note,
    pub(crate) progress: Progress,
    /// The egress that its network allows.
    pub(crate) allowed: Egress,
}

/// The containers that are kept for each image. Sandboxes without a network are rare.
const KINDS: [(Reach, Progress); 3] =
    [(Reach::Networked, Progress::Booted), (Reach::Networked, Progress::Empty), (Reach::Alone, Progress::Empty)];

#[derive(Debug, Default)]
struct Pool {
    ready: Vec<WarmContainer>,
    /// For what containers are kept, with the root file system of each image.
    wanted: VecDeque<(Base, std::path::PathBuf)>,
    /// The bases of recent runs, the latest first.
    used: VecDeque<Base>,
    is_closed: bool,
}

/// While it exists, no warm container is created.
pub(crate) struct HoldBack<'a>(&'a WarmPool);

impl Drop for HoldBack<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
        self.0.wake.notify_one();
    }
}

impl Drop for WarmPool {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl WarmPool {
    pub(crate) fn new(of_each: usize) -> Self {
        Self {
            of_each,
            pool: Mutex::default(),
            busy: AtomicUsize::new(0),
            wake: Arc::default(),
            filling: tokio::sync::Mutex::default(),
        }
    }

    /// Whether containers may be created ahead of runs.
    pub(crate) fn is_on(&self) -> bool {
        self.of_each > 0
    }

    /// Takes a container that fits `order` out of the pool: one with `progress` if possible,
    /// otherwise an empty one.
    pub(crate) fn take(&self, order: &Order, progress: Progress) -> Option<WarmContainer> {
        // All warm containers use the newest build and agent.
        if order.build.is_some() || order.agent.is_some() {
            return None;
        }
        let mut pool = lock(&self.pool);
        let find = |progress| {
            pool.ready.iter().position(|warm| {
                warm.progress == progress
                    && warm.note.reach == order.reach()
                    && warm.note.is_for(&order.root, order.disk_bytes)
            })
        };
        let at = find(progress).or_else(|| find(Progress::Empty))?;
        let taken = pool.ready.swap_remove(at);
        drop(pool);
        self.wake.notify_one();
        Some(taken)
    }

    /// Keeps containers for `base` from now on. It replaces the one for which that was requested
    /// longest ago.
    pub(crate) fn want(&self, base: Base, rootfs: &std::path::Path) {
        let mut pool = lock(&self.pool);
        pool.wanted.retain(|(known, _)| *known != base);
        pool.wanted.push_front((base, rootfs.to_owned()));
        pool.wanted.truncate(BASES);
        drop(pool);
        self.wake.notify_one();
    }

    /// Records that a run starts from `base`. If that is used more than one for which containers
    /// are kept, it replaces the least used of those; those that are used in turns do not displace
    /// each other.
    pub(crate) fn used(&self, base: &Base, rootfs: &std::path::Path) {
        let mut pool = lock(&self.pool);
        pool.used.push_front(base.clone());
        pool.used.truncate(REMEMBERED);
        let Pool { wanted, used, .. } = &mut *pool;
        let times = |base: &Base| used.iter().filter(|used| *used == base).count();
        if wanted.is_empty() || wanted.iter().any(|(known, _)| known == base) {
            return;
        }
        let least = (0..wanted.len()).min_by_key(|at| wanted.get(*at).map_or(0, |(known, _)| times(known)));
        let least = least.filter(|_| wanted.len() >= BASES);
        let before = least.and_then(|at| wanted.get(at)).map_or(0, |(known, _)| times(known));
        // Among bases that are used in turns, one is always one use ahead.
        if times(base) < before + 2 {
            return;
        }
        if let Some(at) = least {
            wanted.remove(at);
        }
        wanted.push_front((base.clone(), rootfs.to_owned()));
        drop(pool);
        self.wake.notify_one();
    }

    pub(crate) fn hold_back(&self) -> HoldBack<'_> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        HoldBack(self)
    }

    /// Returns how many containers are ready for `image`.
    pub(crate) fn count(&self, image: &Digest) -> usize {
        lock(&self.pool).ready.iter().filter(|warm| warm.note.image == image.as_str()).count()
    }

    /// Closes the pool and returns all containers; no more are created.
    pub(crate) async fn close(&self) -> Vec<WarmContainer> {
        lock(&self.pool).is_closed = true;
        self.wake.notify_one();
        // A container that is being created is removed by its creator.
        let _filling = self.filling.lock().await;
        std::mem::take(&mut lock(&self.pool).ready)
    }

    /// Returns a container that the pool lacks, and how far it has to progress.
    pub(crate) fn missing(&self) -> Option<(Order, Progress)> {
        let pool = lock(&self.pool);
        if pool.is_closed || self.busy.load(Ordering::SeqCst) > 0 {
            return None;
        }
        for (base, rootfs) in &pool.wanted {
            for (reach, progress) in KINDS {
                let fits = |warm: &&WarmContainer| {
                    warm.progress == progress && warm.note.reach == reach && base.fits(&warm.note)
                };
                if pool.ready.iter().filter(fits).count() < self.of_each {
                    let resources = Resources { disk_bytes: base.disk_bytes, ..Resources::default() };
                    let order = Order {
                        root: base.image.as_str().to_owned(),
                        rootfs: rootfs.clone(),
                        layers: Vec::new(),
                        egress: match reach {
                            Reach::Networked => Egress::default(),
                            Reach::Alone => Egress::None,
                        },
                        disk_bytes: resources.disk_bytes,
                        // Other containers have precedence.
                        limits: Limits { precedence: Precedence::Last, ..limits::for_guest(&resources) },
                        build: None,
                        agent: None,
                    };
                    return Some((order, progress));
                }
            }
        }
        None
    }

    /// Removes and returns the containers for which none are kept any more, or whose image has been
    /// deleted.
    pub(crate) fn unwanted(&self) -> Vec<WarmContainer> {
        let mut pool = lock(&self.pool);
        let Pool { ready, wanted, .. } = &mut *pool;
        wanted.retain(|(_, rootfs)| is_directory(rootfs));
        let unwanted = |warm: &mut WarmContainer| !wanted.iter().any(|(base, _)| base.fits(&warm.note));
        ready.extract_if(.., unwanted).collect()
    }

    /// Puts a container into the pool; returns it if the pool is closed.
    #[must_use]
    pub(crate) fn put(&self, warm: WarmContainer) -> Option<WarmContainer> {
        let mut pool = lock(&self.pool);
        if pool.is_closed {
            return Some(warm);
        }
        pool.ready.push(warm);
        None
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.pool).is_closed
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn base(letter: char) -> Base {
        Base { image: letter.to_string().repeat(64).parse().unwrap(), disk_bytes: 1 << 30 }
    }

    fn kept(warm_pool: &WarmPool) -> Vec<char> {
        let mut kept: Vec<_> =
            lock(&warm_pool.pool).wanted.iter().filter_map(|(base, _)| base.image.as_str().chars().next()).collect();
        kept.sort_unstable();
        kept
    }

    #[test]
    fn warm_containers_are_kept_for_the_images_that_are_used_most() {
        let warm_pool = WarmPool::new(1);
        let rootfs = Path::new("/");
        warm_pool.used(&base('a'), rootfs);
        warm_pool.used(&base('a'), rootfs);
        assert_eq!(kept(&warm_pool), [], "nothing is kept before anything is prepared");
        for letter in ['b', 'c'] {
            warm_pool.want(base(letter), rootfs);
        }
        warm_pool.used(&base('d'), rootfs);
        assert_eq!(kept(&warm_pool), ['b', 'c'], "once is not often");
        warm_pool.used(&base('b'), rootfs);
        warm_pool.used(&base('d'), rootfs);
        assert_eq!(kept(&warm_pool), ['b', 'd'], "the one that nobody uses goes");
        for _ in 0..5 {
            ['b', 'd', 'e'].into_iter().for_each(|letter| warm_pool.used(&base(letter), rootfs));
        }
        assert_eq!(kept(&warm_pool), ['b', 'd'], "images that are used in turns stay what they are");
        (0..REMEMBERED).for_each(|_| warm_pool.used(&base('e'), rootfs));
        assert!(kept(&warm_pool).contains(&'e'));
    }

    #[test]
    fn warm_containers_are_kept_for_the_sizes_of_disks_that_are_used() {
        let warm_pool = WarmPool::new(1);
        let small = Base { disk_bytes: 256 << 20, ..base('a') };
        warm_pool.want(base('a'), Path::new("/"));
        assert_eq!(warm_pool.missing().unwrap().0.disk_bytes, 1 << 30);
        warm_pool.used(&small, Path::new("/"));
        assert_eq!(warm_pool.missing().unwrap().0.disk_bytes, 1 << 30, "once is not often");
        warm_pool.used(&small, Path::new("/"));
        assert_eq!(warm_pool.missing().unwrap().0.disk_bytes, 256 << 20);
        assert_eq!(kept(&warm_pool), ['a', 'a'], "both sizes are kept");
    }
}
