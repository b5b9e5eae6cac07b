//! The secret and the one-time links for private ports.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dorm_lifecycle::{SandboxId, Timestamp};

/// The maximum number of unopened links; beyond it, the oldest is dropped.
const LINKS_MAX: usize = 4096;

/// The secret that tokens and cookies are derived from. `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PortSecret(pub [u8; 32]);

impl fmt::Debug for PortSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortSecret(..)")
    }
}

/// The unopened links, by their random text.
#[derive(Default)]
pub(crate) struct PortLinks(Mutex<HashMap<String, Link>>);

struct Link {
    sandbox: SandboxId,
    port: u16,
    until: Timestamp,
}

impl PortLinks {
    /// Adds a link that is valid from `now` until `until`, and forgets expired ones.
    pub(crate) fn add(&self, ticket: &str, sandbox: &SandboxId, port: u16, (now, until): (Timestamp, Timestamp)) {
        let mut links = self.lock();
        links.retain(|_, link| now < link.until);
        if links.len() >= LINKS_MAX {
            let oldest = links.iter().min_by_key(|(_, link)| link.until).map(|(ticket, _)| ticket.clone());
            links.remove(&oldest.unwrap_or_default());
        }
        links.insert(ticket.to_owned(), Link { sandbox: sandbox.clone(), port, until });
    }

    /// Uses up a link; returns whether it was valid for this port.
    pub(crate) fn take(&self, ticket: &str, sandbox: &SandboxId, port: u16, now: Timestamp) -> bool {
        let mut links = self.lock();
        let fits = |link: &Link| link.sandbox == *sandbox && link.port == port && now < link.until;
        // A link for another port is kept: knowing its text alone must not be enough to use it up.
        links.get(ticket).is_some_and(fits) && links.remove(ticket).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
