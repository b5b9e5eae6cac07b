//! The secret and the one-time links for private ports.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use dorm_lifecycle::{SandboxId, Timestamp};

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
pub(crate) struct PortLinks(pub(crate) Mutex<HashMap<String, Link>>);

pub(crate) struct Link {
    pub(crate) sandbox: SandboxId,
    pub(crate) port: u16,
    pub(crate) until: Timestamp,
}
