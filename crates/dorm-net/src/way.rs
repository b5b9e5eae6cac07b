//! The way of packets between sandboxes and the internet, through the host: its packet rules and
//! its forwarding. All daemons of a host change them under its lock.

use std::io;
use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use crate::command::{CommandError, Commands};
use crate::forwarding;
use crate::generation::generation;
use crate::host::HostLock;
use crate::layout::Layout;
use crate::ruleset::{self, Closing};

/// Why the host cannot let sandboxes reach the internet.
#[derive(Debug, Error)]
pub(crate) enum WayError {
    /// Forwarding could not be turned on.
    #[error("cannot change /proc/sys/net/ipv4/conf: run as root, and not in a container with a read-only /proc/sys")]
    Forward(#[source] io::Error),
    /// The packet rules could not be changed.
    #[error("cannot change the host's packet rules")]
    Rules(#[source] CommandError),
}

/// The state of the host's packet rules, as far as this process knows it.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// The number of the change that set our rules, if it was the last one then.
    set: Mutex<Option<u32>>,
}

impl Way {
    /// Lets sandboxes reach the internet through the host, but not the host itself. Called for
    /// every lease, since other programs may have flushed the host's rules. If nothing changed any
    /// rule since, ours are not set again.
    pub(crate) fn open(&self, lock: &HostLock, layout: &Layout, commands: &Commands) -> Result<(), WayError> {
        Self::forward(lock)?;
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let before = generation().ok();
        if before.is_some() && *set == before {
            return Ok(());
        }
        *set = None;
        // A kernel without timeouts per rule keeps closed connections of sandboxes as long as its
        // own.
        let ruled = commands.nft(&ruleset::host(layout, Closing::Soon));
        ruled.or_else(|_| commands.nft(&ruleset::host(layout, Closing::AsTheHost))).map_err(WayError::Rules)?;
        // Another program may have changed the rules in between, before or after us.
        *set = generation().ok().filter(|&now| before.is_some_and(|before| now == before.wrapping_add(1)));
        Ok(())
    }

    /// Lets the host forward replies to sandboxes.
    pub(crate) fn forward(_: &HostLock) -> Result<(), WayError> {
        forwarding::open().map_err(WayError::Forward)
    }

    /// Removes the host's rules, and with the last lease of the host its forwarding.
    pub(crate) fn close(_: &HostLock, layout: &Layout, commands: &Commands) -> Result<(), WayError> {
        forwarding::close_after_last().map_err(WayError::Forward)?;
        commands.nft(&ruleset::no_host(layout)).map_err(WayError::Rules)
    }
}
