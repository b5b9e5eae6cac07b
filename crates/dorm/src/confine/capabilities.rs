//! The capabilities that the daemon and the programs it starts (`runsc`, `ip`, `nft`, `mkfs.ext4`)
//! use.

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{ConfineError, system};

/// The capabilities that are kept, with their kernel names.
pub(crate) const KEPT: [(&str, CapabilitySet); 15] = [
    // Files of guests and images: their owners, modes, set-user-id bits, file capabilities and
    // overlay whiteouts.
    ("CAP_CHOWN", CapabilitySet::CHOWN),
    ("CAP_DAC_OVERRIDE", CapabilitySet::DAC_OVERRIDE),
    ("CAP_FOWNER", CapabilitySet::FOWNER),
    ("CAP_FSETID", CapabilitySet::FSETID),
    ("CAP_MKNOD", CapabilitySet::MKNOD),
    ("CAP_SETFCAP", CapabilitySet::SETFCAP),
    // The id maps of sandboxes, and ending their processes.
    ("CAP_SETUID", CapabilitySet::SETUID),
    ("CAP_SETGID", CapabilitySet::SETGID),
    ("CAP_KILL", CapabilitySet::KILL),
    // Reading in /proc which of its disks a sandbox has open.
    ("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE),
    // Mounts, namespaces and loop devices.
    ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN),
    // Links, addresses, routes and packet rules; the packet socket of a sandbox's link; the port of
    // its name server.
    ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN),
    ("CAP_NET_RAW", CapabilitySet::NET_RAW),
    ("CAP_NET_BIND_SERVICE", CapabilitySet::NET_BIND_SERVICE),
    // Growing a mounted file system.
    ("CAP_SYS_RESOURCE", CapabilitySet::SYS_RESOURCE),
];

/// The union of [`KEPT`].
pub(crate) fn kept() -> CapabilitySet {
    KEPT.iter().fold(CapabilitySet::empty(), |all, (_, one)| all | *one)
}

/// Drops all other capabilities from every set of the calling thread.
pub(super) fn reduce() -> Result<(), ConfineError> {
    let kept = kept();
    let had = rustix::thread::capabilities(None).map_err(system("read the daemon's capabilities"))?;
    // Without CAP_SETPCAP the bounding set stays. It then restores nothing, since no new privileges
    // can be gained.
    if had.effective.contains(CapabilitySet::SETPCAP) {
        for bit in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << bit);
            if kept.contains(one) || !matches!(rustix::thread::capability_is_in_bounding_set(one), Ok(true)) {
                continue;
            }
            rustix::thread::remove_capability_from_bounding_set(one)
                .map_err(system("reduce the daemon's bounding set"))?;
        }
    }
    let sets = CapabilitySets {
        effective: had.effective & kept,
        permitted: had.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).map_err(system("reduce the daemon's capabilities"))?;
    rustix::thread::clear_ambient_capability_set().map_err(system("clear the daemon's ambient capabilities"))
}
