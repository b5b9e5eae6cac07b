//! Records that a list leaves out because they cannot be read.

use dorm_client::Client;

use super::output;

/// Prints on standard error which records of a kind are missing from a list.
pub(super) async fn tell(client: &Client, kind: &str) {
    // The list was printed already. If the daemon does not answer this, there is nothing to add.
    let Ok(quarantine) = client.quarantine().await else { return };
    for record in quarantine.records.iter().filter(|record| record.kind == kind) {
        let name = record.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        output::talk(&format!(
            "not listed: {kind} {}{name}, whose record cannot be read: {}; stop the daemon and run `dorm repair --dry-run`",
            record.id, record.reason
        ));
    }
}
