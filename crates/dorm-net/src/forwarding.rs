//! Lets the host forward packets between sandboxes and the internet, and no others.
//!
//! The setting `ip_forward` turns the whole host into a router, and is not changed. The kernel also
//! forwards packets that arrive on an interface whose own setting is on, so the uplinks of
//! sandboxes and the interfaces on which replies arrive are sufficient. The names of the latter
//! interfaces are recorded, for all daemons of the host, before their setting is turned on; it is
//! turned off after the last lease of the last daemon.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::interfaces;
use crate::layout::INTERFACES;

/// The names of the interfaces whose setting a daemon has turned on, one per line.
const RECORD: &str = "/run/dormouse/forwarding";
const SWITCHES: &str = "/proc/sys/net/ipv4/conf";
const WHOLE_HOST: &str = "/proc/sys/net/ipv4/ip_forward";

/// Turns on forwarding for the uplink of one lease. The setting disappears with the uplink.
pub(crate) fn open_uplink(uplink: &str) -> io::Result<()> {
    if is_on(uplink)? { Ok(()) } else { std::fs::write(switch(uplink), "1") }
}

/// Returns whether replies to sandboxes are forwarded on every interface on which they may arrive.
pub(crate) fn is_open() -> io::Result<bool> {
    Ok(whole_host()? || closed()?.is_empty())
}

/// Turns on forwarding for every interface that has a route. Requires the host's lock.
pub(crate) fn open() -> io::Result<()> {
    if whole_host()? {
        return Ok(());
    }
    let closed = closed()?;
    if closed.is_empty() {
        return Ok(());
    }
    let mut record = recorded()?;
    record.extend(closed.iter().cloned());
    let draft = PathBuf::from(format!("{RECORD}.draft"));
    std::fs::write(&draft, record.into_iter().collect::<Vec<_>>().join("\n"))?;
    std::fs::rename(draft, RECORD)?;
    closed.iter().try_for_each(|device| gone_is_fine(std::fs::write(switch(device), "1")))
}

/// Turns off what was turned on, unless a daemon still has a lease. Requires the host's lock.
pub(crate) fn close_after_last() -> io::Result<()> {
    let record = recorded()?;
    if record.is_empty() || interfaces::interfaces()?.iter().any(|name| name.starts_with(INTERFACES)) {
        return Ok(());
    }
    // If the host has been made a router meanwhile, the setting is on for every interface and
    // belongs to the administrator.
    if !whole_host()? {
        record.iter().try_for_each(|device| gone_is_fine(std::fs::write(switch(device), "0")))?;
    }
    std::fs::remove_file(RECORD)
}

/// Returns the interfaces with a route whose setting is off, except those of sandboxes.
fn closed() -> io::Result<BTreeSet<String>> {
    let mut closed = BTreeSet::new();
    for device in interfaces::devices()? {
        if device != "lo" && !device.starts_with(INTERFACES) && !is_on(&device)? {
            closed.insert(device);
        }
    }
    Ok(closed)
}

fn recorded() -> io::Result<BTreeSet<String>> {
    match std::fs::read_to_string(RECORD) {
        Ok(text) => Ok(text.lines().filter(|name| is_name(name)).map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// Returns whether `text` is a valid interface name that is safe as part of a path.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains('/') && text != "all" && text != "default"
}

fn switch(device: &str) -> PathBuf {
    Path::new(SWITCHES).join(device).join("forwarding")
}

fn whole_host() -> io::Result<bool> {
    Ok(std::fs::read_to_string(WHOLE_HOST)?.trim() != "0")
}

/// Returns whether forwarding is on for `device`. A missing interface forwards nothing and needs no
/// change, so it counts as on.
fn is_on(device: &str) -> io::Result<bool> {
    match std::fs::read_to_string(switch(device)) {
        Ok(text) => Ok(text.trim() != "0"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

fn gone_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_cannot_lead_to_another_switch() {
        for wrong in ["", ".", "..", "a/b", "all", "default"] {
            assert!(!is_name(wrong), "{wrong}");
        }
        assert!(is_name("eth0") && is_name("wg-0.5"));
    }
}
