//! Tickets for the upload of a build context, for clients that do not send their key to the address
//! of an upload. Like the tokens of ports they are derived from a secret of the daemon and not
//! recorded.

use std::time::Duration;

use dorm_lifecycle::Digest;
use subtle::ConstantTimeEq as _;

use crate::shared::Service;

/// How long a ticket is valid: as long as clients of E2B take for one upload.
const LIFETIME: Duration = Duration::from_secs(3600);

impl Service {
    /// Returns a text that permits to upload the context with this hash to this project, for an
    /// hour.
    pub fn upload_ticket(&self, key: &Digest) -> String {
        self.ticket_until(key, self.shared.now().after(LIFETIME).as_millis())
    }

    /// Returns whether `presented` is a ticket for the upload of this context that has not expired.
    pub fn is_upload_ticket(&self, key: &Digest, presented: &str) -> bool {
        let Some(until) = presented.split_once('.').and_then(|(until, _)| until.parse::<u64>().ok()) else {
            return false;
        };
        let is_right: bool = self.ticket_until(key, until).as_bytes().ct_eq(presented.as_bytes()).into();
        is_right && self.shared.now().as_millis() < until
    }

    fn ticket_until(&self, key: &Digest, until: u64) -> String {
        let moment = until.to_string();
        format!("{until}.{}", self.derive(&["upload", self.project().as_str(), key.as_str(), &moment]))
    }
}
