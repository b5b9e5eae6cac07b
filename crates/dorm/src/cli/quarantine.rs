//! What a list leaves out since it cannot be read.

use super::output;
use crate::client::Client;

/// Names the records of a kind that are missing from a list, on standard error.
pub(super) async fn tell(client: &Client, kind: &str) {
    // The list itself is there; a daemon that does not answer this has nothing to add to it.
    let Ok(quarantine) = client.quarantine().await else { return };
    for record in quarantine.records.iter().filter(|record| record.kind == kind) {
        let name = record.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        output::talk(&format!(
            "not listed: {kind} {}{name}, whose record cannot be read: {}; stop the daemon and run `dorm repair --dry-run`",
            record.id, record.reason
        ));
    }
}
