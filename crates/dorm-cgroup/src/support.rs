//! The control groups that this host supports.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::controller::{Controller, Version};
use crate::error::CgroupError;
use crate::group::Cgroup;
use crate::layout::Layout;
use crate::values::{Limits, Precedence};

/// The controllers that this host offers, for `dorm doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Support {
    /// Each controller with its version, or `None` if it is missing.
    pub controllers: Vec<(Controller, Option<Version>)>,
    /// Whether groups can be created, tested with an empty one.
    pub can_create: Result<(), String>,
}

impl Support {
    /// Probes this host. Creates an empty group and removes it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn probe() -> Result<Self, CgroupError> {
        let layout = Layout::of_this_host()?;
        let controllers =
            Controller::ALL.into_iter().map(|controller| (controller, layout.version(controller))).collect();
        static PROBES: AtomicU32 = AtomicU32::new(0);
        let name = format!("dormouse-probe-{}-{}", std::process::id(), PROBES.fetch_add(1, Ordering::Relaxed));
        let limits = Limits { cpu_millis: 1000, precedence: Precedence::Fair, memory_bytes: 64 << 20, threads: 64 };
        let can_create =
            Cgroup::create_in(&layout, &name, &limits).and_then(|group| group.remove()).map_err(|error| error.chain());
        Ok(Self { controllers, can_create })
    }

    /// Returns whether sandboxes can run: the required controllers exist, and groups can be
    /// created.
    pub fn is_enough(&self) -> bool {
        self.can_create.is_ok() && self.missing().all(|controller| !controller.is_needed())
    }

    /// Returns the controllers that this host does not offer.
    pub fn missing(&self) -> impl Iterator<Item = Controller> {
        self.controllers.iter().filter(|(_, version)| version.is_none()).map(|(controller, _)| *controller)
    }
}
