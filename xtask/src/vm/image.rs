//! The virtual machine: a stock Debian 12 with the kernel of the distribution.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::setup;

/// The program that emulates the machine.
pub(crate) const EMULATOR: &str = "qemu-system-x86_64";

/// The packages of the machine: those of an ordinary server, and what the package of Dormouse
/// depends on, since the machine has no network to fetch that.
const PACKAGES: &str = "linux-image-amd64,systemd-sysv,udev,dbus,kmod,procps,bash,python3,nftables,\
    e2fsprogs,ca-certificates,runsc/bookworm-backports";
const SIZE: u64 = 12 << 30;

/// Ends with the machine off, whatever happens.
const UNIT: &str = "[Unit]
Description=The commands of cargo xtask vm
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mount -o ro /dev/vdb /mnt && exec bash /mnt/smoke.sh'
ExecStopPost=/usr/bin/systemctl --no-block poweroff
StandardOutput=file:/dev/ttyS1
StandardError=inherit
TimeoutStartSec=infinity
[Install]
WantedBy=graphical.target multi-user.target
";

/// Runs in the new root.
const CUSTOMIZE: &str = r#"
set -eu
chroot "$1" systemctl enable vm.service
echo vm > "$1/etc/hostname"
printf '127.0.0.1 localhost vm\n' > "$1/etc/hosts"
echo '/dev/vda / ext4 defaults 0 1' > "$1/etc/fstab"
chroot "$1" passwd -d root
"#;

/// A machine that can be started.
pub(super) struct Machine {
    pub(super) kernel: PathBuf,
    pub(super) initrd: PathBuf,
    /// The disk with the root file system.
    pub(super) root: PathBuf,
}

/// Builds the machine, unless one of the same recipe exists.
pub(super) fn ensure(work: &Path) -> Result<Machine> {
    let name = &hash()[..12];
    let place = |kind: &str| work.join(format!("{kind}-{name}"));
    let machine = Machine { kernel: place("kernel"), initrd: place("initrd"), root: place("root") };
    if machine.root.is_file() {
        return Ok(machine);
    }
    eprintln!("vm: building the machine, which takes some minutes");
    remove_others(work)?;
    let new = tempfile::Builder::new().prefix("new-").tempdir_in(work).context("create a directory for the machine")?;
    let tree = new.path().join("tree");
    let unit = new.path().join("vm.service");
    fs::write(&unit, UNIT)?;
    let mirror = setup::mirror();
    let mut command = Command::new("mmdebstrap");
    command.args(["--mode=root", "--variant=minbase", "--dpkgopt=force-unsafe-io"]);
    command.args(["--aptopt=Acquire::Retries \"3\"", &format!("--include={PACKAGES}")]);
    command.arg(format!("--customize-hook=copy-in {} /etc/systemd/system", unit.display()));
    command.arg(format!("--customize-hook={CUSTOMIZE}"));
    command.arg("bookworm").arg(&tree);
    command.args(["bookworm", "bookworm-backports"].map(|suite| format!("deb {mirror} {suite} main")));
    setup::logged(&mut command, &work.join("build.log"))?;
    let boot = |beginning: &str| -> Result<PathBuf> {
        let entries = fs::read_dir(tree.join("boot")).context("list /boot of the machine")?;
        let found = entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(beginning));
        Ok(found.with_context(|| format!("the machine has no {beginning}"))?.path())
    };
    fs::copy(boot("vmlinuz")?, &machine.kernel).context("copy the kernel")?;
    fs::copy(boot("initrd")?, &machine.initrd).context("copy the initial file system")?;
    let disk = new.path().join("root.img");
    file_system(&tree, &disk, SIZE)?;
    fs::rename(&disk, &machine.root).context("rename the disk")?;
    Ok(machine)
}

/// Removes machines of other recipes.
fn remove_others(work: &Path) -> Result<()> {
    for entry in fs::read_dir(work).with_context(|| format!("list {}", work.display()))?.flatten() {
        let name = entry.file_name();
        if ["kernel-", "initrd-", "root-"].iter().any(|kind| name.to_string_lossy().starts_with(kind)) {
            fs::remove_file(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Makes a disk of this many bytes with the files of `directory`.
pub(super) fn file_system(directory: &Path, disk: &Path, bytes: u64) -> Result<()> {
    File::create(disk).and_then(|file| file.set_len(bytes)).with_context(|| format!("create {}", disk.display()))?;
    let output = Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(directory).arg(disk).output();
    let output = output.context("run mkfs.ext4")?;
    if !output.status.success() {
        bail!("mkfs.ext4 -d {}: {}", directory.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Returns a hash of everything that determines the machine.
fn hash() -> String {
    let mut hasher = blake3::Hasher::new();
    for part in [PACKAGES, UNIT, CUSTOMIZE] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_hex().to_string()
}
