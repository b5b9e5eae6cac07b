//! Access to private ports: the port token of a sandbox, one-time links, and the cookies that links
//! are exchanged for.
//!
//! Tokens and cookies are not recorded: they are derived from a secret of the daemon, so that they
//! stay valid across suspends and restarts, differ between a sandbox and its forks, and are in no
//! snapshot. Links are kept in memory, for one minute.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dorm_lifecycle::{PortTerms, SandboxId, Timestamp, VolumeId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::error::ServiceError;
use crate::shared::Service;

/// How long a link to a port is valid. It can be opened once.
pub const LINK_LIFETIME: Duration = Duration::from_secs(60);
/// How long the cookie is valid that a link was exchanged for.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(12 * 3600);

impl Service {
    /// Returns how requests to a port of a sandbox are treated.
    ///
    /// # Errors
    ///
    /// `NoSandbox`.
    pub async fn port_terms(&self, id: &SandboxId, port: u16) -> Result<PortTerms, ServiceError> {
        Ok(self.record(id).await?.sandbox.spec.port(port))
    }

    /// Returns a secret from which the certificates of this daemon's own hosts are made; `None`
    /// without a key for secrets.
    pub fn secret_of_hosts(&self) -> Option<[u8; 32]> {
        self.shared.settings.secrets_key.as_ref().map(|key| key.derive("dormouse hosts 1"))
    }

    /// Returns the token for every port of a sandbox. It never changes.
    pub fn port_token(&self, id: &SandboxId) -> String {
        self.derive(&["port", id.as_str()])
    }

    /// Returns whether `presented` is the port token of a sandbox.
    pub fn is_port_token(&self, id: &SandboxId, presented: &[u8]) -> bool {
        self.port_token(id).as_bytes().ct_eq(presented).into()
    }

    /// Returns the token of a sandbox for a purpose of a door. It never changes.
    pub fn sandbox_token(&self, id: &SandboxId, purpose: &str) -> String {
        self.derive(&["door", purpose, id.as_str()])
    }

    /// Returns the token of a volume for a purpose of a door. It never changes.
    pub fn volume_token(&self, id: &VolumeId, purpose: &str) -> String {
        self.derive(&["volume", purpose, id.as_str()])
    }

    /// Returns a text that can be exchanged once, within [`LINK_LIFETIME`], for a cookie to a port;
    /// and when it expires.
    pub fn port_link(&self, id: &SandboxId, port: u16) -> (String, Timestamp) {
        let now = self.shared.now();
        let until = now.after(LINK_LIFETIME);
        let ticket = URL_SAFE_NO_PAD.encode(self.shared.ids().random::<24>());
        self.shared.port_links.add(&ticket, id, port, (now, until));
        (ticket, self.shared.clock.shown(until))
    }

    /// Exchanges the text of a link for the cookie to its port; `None` for a text that was
    /// exchanged before, has expired, or is for another port.
    pub fn open_port_link(&self, id: &SandboxId, port: u16, ticket: &str) -> Option<String> {
        let now = self.shared.now();
        self.shared
            .port_links
            .take(ticket, id, port, now)
            .then(|| self.cookie(id, port, now.after(COOKIE_LIFETIME).as_millis()))
    }

    /// Returns whether a cookie is valid for a port.
    pub fn is_port_cookie(&self, id: &SandboxId, port: u16, presented: &str) -> bool {
        let Some(until) = presented.split_once('.').and_then(|(until, _)| until.parse::<u64>().ok()) else {
            return false;
        };
        let is_right: bool = self.cookie(id, port, until).as_bytes().ct_eq(presented.as_bytes()).into();
        is_right && self.shared.now().as_millis() < until
    }

    fn cookie(&self, id: &SandboxId, port: u16, until: u64) -> String {
        let (port, moment) = (port.to_string(), until.to_string());
        format!("{until}.{}", self.derive(&["cookie", id.as_str(), &port, &moment]))
    }

    pub(super) fn derive(&self, parts: &[&str]) -> String {
        // The key can have any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.shared.port_secret.0) else { std::process::abort() };
        for part in parts {
            mac.update(part.as_bytes());
            mac.update(b"\0");
        }
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }
}
