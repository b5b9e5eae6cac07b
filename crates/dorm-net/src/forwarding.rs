//! Lets the host forward packets between sandboxes and the internet, and nothing else.
//!
//! The switch `ip_forward` turns the whole host into a router. It stays as it is: the kernel also forwards what arrives
//! on an interface whose own switch is on, so the uplinks of sandboxes and the interfaces that answers arrive on are
//! enough. Which of the latter were switched on is recorded for all daemons of the host, before it is done, and those
//! are switched off after the last lease of the last daemon.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::host;
use crate::layout::INTERFACES;

/// The interfaces that a daemon has switched on, a name in each line.
const RECORD: &str = "/run/dormouse/forwarding";
const SWITCHES: &str = "/proc/sys/net/ipv4/conf";
const WHOLE_HOST: &str = "/proc/sys/net/ipv4/ip_forward";

/// Switches on the uplink of one lease, which goes with the lease.
pub(crate) fn open_uplink(uplink: &str) -> io::Result<()> {
    if is_on(uplink)? { Ok(()) } else { std::fs::write(switch(uplink), "1") }
}

/// Whether answers to sandboxes are forwarded, on whatever interface they arrive.
pub(crate) fn is_open() -> io::Result<bool> {
    Ok(whole_host()? || closed()?.is_empty())
}

/// Switches on every interface that has a route. Under the host's lock.
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

/// Switches off what was switched on, unless a daemon still has a lease. Under the host's lock.
pub(crate) fn close_after_last() -> io::Result<()> {
    let record = recorded()?;
    if record.is_empty() || host::interfaces()?.iter().any(|name| name.starts_with(INTERFACES)) {
        return Ok(());
    }
    // Somebody has made the host a router meanwhile, which is on for every interface: it is theirs now.
    if !whole_host()? {
        record.iter().try_for_each(|device| gone_is_fine(std::fs::write(switch(device), "0")))?;
    }
    std::fs::remove_file(RECORD)
}

/// The interfaces with a route whose switch is off, without those of sandboxes.
fn closed() -> io::Result<BTreeSet<String>> {
    let mut closed = BTreeSet::new();
    for device in host::devices()? {
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

/// The name of an interface is part of a path.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains('/') && text != "all" && text != "default"
}

fn switch(device: &str) -> PathBuf {
    Path::new(SWITCHES).join(device).join("forwarding")
}

fn whole_host() -> io::Result<bool> {
    Ok(std::fs::read_to_string(WHOLE_HOST)?.trim() != "0")
}

/// An interface that is gone forwards nothing, and lacks nothing.
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
