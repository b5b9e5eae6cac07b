//! The OCI bundle of a container, which configures `runsc create`.
//!
//! It is the same for a cold boot and a restore, because a memory image only fits the mounts it was
//! saved with. Guest IDs are mapped to a range of host IDs that is used for nothing else; the
//! owners of the image's files were shifted to that range when the image was imported.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use dorm_engine::{Lease, MOUNTS};
use dorm_guest_ids::GuestIds;
use dorm_memory_image::TMP_OPTIONS;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::error::GvisorError;
use crate::notes::Home;

/// The path of the agent in the sandbox. Every image has an empty file at this path.
pub(crate) const AGENT: &str = "/dorm-agent";

/// The capabilities of the agent, and through it of root in the sandbox, towards the sandbox's own
/// kernel. They have no effect on the host.
const CAPABILITIES: [&str; 17] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
];

/// Creates the FIFOs of the agent's three standard streams in the container's home.
pub(crate) fn make_fifos(home: &Home) -> Result<(), GvisorError> {
    for path in [home.input(), home.output(), home.said()] {
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).map_err(|source| GvisorError::file("create", &path, source))?;
    }
    Ok(())
}

/// Writes the bundle into the container's home.
pub(crate) fn write(
    home: &Home,
    rootfs: &Path,
    agent: &Path,
    lease: Option<&Lease>,
    ids: GuestIds,
) -> Result<(), GvisorError> {
    let bundle = home.bundle();
    fs::DirBuilder::new().mode(0o700).create(&bundle).map_err(|source| GvisorError::file("create", &bundle, source))?;
    let path = bundle.join("config.json");
    let text = serde_json::to_vec(&describe(rootfs, agent, lease, &home.slots(), ids))
        .map_err(|source| GvisorError::Text { path: path.clone(), source })?;
    fs::write(&path, text).map_err(|source| GvisorError::file("write", &path, source))
}

/// Returns the path of the agent that the container in `home` was made with.
pub(crate) fn agent(home: &Home) -> Result<PathBuf, GvisorError> {
    let path = home.bundle().join("config.json");
    let text = fs::read(&path).map_err(|source| GvisorError::file("read", &path, source))?;
    let bundle: Value =
        serde_json::from_slice(&text).map_err(|source| GvisorError::Text { path: path.clone(), source })?;
    let mut mounts = bundle["mounts"].as_array().into_iter().flatten();
    let agent = mounts.find(|mount| mount["destination"] == AGENT).and_then(|mount| mount["source"].as_str());
    agent.map(PathBuf::from).ok_or_else(|| GvisorError::file("find the agent in", path, io::ErrorKind::InvalidData))
}

fn describe(rootfs: &Path, agent: &Path, lease: Option<&Lease>, slots: &Path, ids: GuestIds) -> Value {
    let network = match lease {
        Some(lease) => json!({"type": "network", "path": lease.namespace}),
        None => json!({"type": "network"}),
    };
    let ids = json!([{"containerID": 0, "hostID": ids.base(), "size": GuestIds::COUNT}]);
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [AGENT, "stdio"],
            "cwd": "/",
            "terminal": false,
            "env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME=/root",
                "TERM=xterm",
            ],
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES,
                "inheritable": CAPABILITIES, "permitted": CAPABILITIES,
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1_048_576, "soft": 65_536}],
        },
        "root": {"path": rootfs, "readonly": false},
        "hostname": "sandbox",
        "mounts": mounts(rootfs, agent, slots),
        "linux": {
            "namespaces": [
                {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "user"}, network,
            ],
            "uidMappings": ids,
            "gidMappings": ids,
        },
    })
}

fn mounts(rootfs: &Path, agent: &Path, slots: &Path) -> Vec<Value> {
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}),
        json!({"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs",
               "options": ["nosuid", "noexec", "nodev", "ro"]}),
        // A slave mount: file systems that are mounted on the host later appear in the sandbox,
        // too.
        json!({"destination": MOUNTS, "type": "bind", "source": slots, "options": ["rbind", "rslave", "rw"]}),
        json!({"destination": AGENT, "type": "bind", "source": agent, "options": ["ro", "bind"]}),
    ];
    // If this mount is missing and /tmp is empty, gVisor mounts an unlimited in-memory file system
    // there. At the boot, the agent unmounts it, so that /tmp is on the disk; agents of earlier
    // releases did not. An image with a non-empty /tmp keeps it on the disk with the rest.
    let is_empty = fs::read_dir(rootfs.join("tmp")).is_ok_and(|mut entries| entries.next().is_none());
    if is_empty {
        mounts.push(json!({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": TMP_OPTIONS}));
    }
    mounts
}
