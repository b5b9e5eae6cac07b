//! Loop devices, which present a file as a block device, as far as a run's disk needs them.
//!
//! Every device detaches itself when it is no longer in use, so that none outlives a crash.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::DiskError;

const CONTROL: &str = "/dev/loop-control";
/// How long other processes may keep taking the free devices first.
const SNATCH_LIMIT: Duration = Duration::from_secs(30);
const MAJOR: u32 = 7;

const LOOP_CTL_GET_FREE: u64 = 0x4C82;
const LOOP_CONFIGURE: u64 = 0x4C0A;
const LOOP_GET_STATUS64: u64 = 0x4C05;
const LOOP_SET_CAPACITY: u64 = 0x4C07;
const LOOP_SET_DIRECT_IO: u64 = 0x4C08;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl LoopInfo {
    const EMPTY: Self = Self {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        sizelimit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// `struct loop_config` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A device that exists as long as this value, or longer if it is mounted.
#[derive(Debug)]
pub(super) struct LoopDevice {
    open: OwnedFd,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `image` to a free device.
    pub(super) fn attach(image: &Path) -> Result<Self, DiskError> {
        // At least within one process, the same free device is not offered to two threads.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let backing = File::options()
            .read(true)
            .write(true)
            .open(image)
            .map_err(|source| DiskError::file("open", image, source))?;
        let control = open_device(Path::new(CONTROL))?;
        let end = Instant::now() + SNATCH_LIMIT;
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let number = call(&control, LOOP_CTL_GET_FREE, 0).map_err(|source| no_loop(CONTROL, source))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            make_node(&path, number)?;
            let device = open_device(&path)?;
            match configure(&device, &backing, image) {
                Ok(()) => return Ok(Self { open: device, path }),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(source) => return Err(DiskError::file("attach the disk of", image, source)),
            }
        }
    }

    /// Opens the device that is attached to the file `image`, if there is one. Paths do not tell:
    /// the file may have several, through bind mounts or a second mount of its file system.
    pub(super) fn attached_to(image: &Path) -> Result<Option<Self>, DiskError> {
        let facts = fs::metadata(image).map_err(|source| DiskError::file("read the metadata of", image, source))?;
        for number in all().map(|(number, _)| number) {
            let path = PathBuf::from(format!("/dev/loop{number}"));
            make_node(&path, number)?;
            // Closing a device that was open for writing makes udev examine it.
            let found = File::open(&path).map(OwnedFd::from).and_then(|open| Ok((status(&open)?, open)));
            match found {
                Ok((status, kept)) if (status.device, status.inode) == (facts.dev(), facts.ino()) => {
                    let device = Self::numbered(number);
                    // Until here the open descriptor has kept the device from being detached and
                    // attached to another file.
                    drop(kept);
                    return device.map(Some);
                }
                Ok(_) => {}
                Err(error) if is_unattached(&error) => {}
                Err(source) => return Err(DiskError::file("read the state of", &path, source)),
            }
        }
        Ok(None)
    }

    /// Opens the device with this number.
    pub(super) fn numbered(number: u32) -> Result<Self, DiskError> {
        let path = PathBuf::from(format!("/dev/loop{number}"));
        make_node(&path, number)?;
        Ok(Self { open: open_device(&path)?, path })
    }

    /// Switches the mounted device to direct I/O on its file, in the background: the file system on
    /// it has a cache already, and a second one counts twice against the run's memory and writes at
    /// a fifth of the speed. Switching flushes the new copy, which takes some 10 ms and must not
    /// delay the caller. If the file does not support it, or the process dies before, the disk is
    /// only slower. Until it is done the device stays, even without its mount.
    pub(super) fn bypass_cache_soon(self) {
        let switch = move || {
            if let Err(error) = call(&self.open, LOOP_SET_DIRECT_IO, 1) {
                tracing::debug!(device = %self.path.display(), %error, "cannot use direct I/O for the file of this disk; its data is cached twice");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("disk-bypass".into()).spawn(switch) {
            tracing::debug!(%error, "cannot use direct I/O for the file of a disk; its data is cached twice");
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn number(&self) -> Option<u32> {
        self.path.to_str()?.strip_prefix("/dev/loop")?.parse().ok()
    }

    /// Updates the size of the device to that of its file.
    pub(super) fn take_new_size(&self) -> Result<(), DiskError> {
        let done = call(&self.open, LOOP_SET_CAPACITY, 0);
        done.map(drop).map_err(|source| DiskError::file("set the new size of", &self.path, source))
    }
}

/// Checks whether loop devices are available, for `dorm doctor`. Attaches nothing.
pub(super) fn probe() -> Result<(), DiskError> {
    let control = open_device(Path::new(CONTROL))?;
    let number = call(&control, LOOP_CTL_GET_FREE, 0).map_err(|source| no_loop(CONTROL, source))?;
    let path = PathBuf::from(format!("/dev/loop{number}"));
    make_node(&path, number)?;
    open_device(&path).map(drop)
}

fn no_loop(what: &str, source: io::Error) -> DiskError {
    DiskError::NoLoop { what: PathBuf::from(what), source }
}

fn open_device(path: &Path) -> Result<OwnedFd, DiskError> {
    let file = File::options().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(|source| DiskError::NoLoop { what: path.to_owned(), source })
}

/// Creates the device node. In a container `/dev` does not follow the kernel: a new device has no
/// node there.
fn make_node(path: &Path, number: u32) -> Result<(), DiskError> {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    if path.exists() {
        return Ok(());
    }
    match mknodat(CWD, path, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, makedev(MAJOR, number)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(DiskError::NoLoop { what: path.to_owned(), source: error.into() }),
    }
}

fn configure(device: &OwnedFd, backing: &File, image: &Path) -> io::Result<()> {
    let mut file_name = [0_u8; 64];
    let text = image.as_os_str().as_encoded_bytes();
    // Only for people who list devices: the end of the path is the most informative.
    let text = text.get(text.len().saturating_sub(file_name.len() - 1)..).unwrap_or_default();
    file_name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    let info = LoopInfo { flags: LO_FLAGS_AUTOCLEAR, file_name, ..LoopInfo::EMPTY };
    let fd = u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?;
    let config = LoopConfig { fd, block_size: 4096, info, reserved: [0; 8] };
    call(device, LOOP_CONFIGURE, std::ptr::from_ref(&config) as usize).map(drop)
}

/// Returns the state of an attached device, with the identity of its file.
fn status(device: &OwnedFd) -> io::Result<LoopInfo> {
    let mut info = LoopInfo::EMPTY;
    call(device, LOOP_GET_STATUS64, std::ptr::from_mut(&mut info) as usize)?;
    Ok(info)
}

/// Whether the error says that a device was detached since it was listed.
fn is_unattached(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV | libc::ENOENT))
}

/// Makes one of the calls above. Returns the number of a device, if the call does.
fn call(device: &OwnedFd, request: u64, argument: usize) -> io::Result<u32> {
    // SAFETY: the requests used here take nothing, a pointer to a `LoopConfig`, which is only read,
    // or one to a `LoopInfo`, which is only written; both outlive the call. The descriptor is open.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), request as _, argument) };
    u32::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// Returns the number of the loop device that contains the file system of `mounted`, or `None` for
/// another kind of device.
pub(super) fn number_below(mounted: &Path) -> io::Result<Option<u32>> {
    let device = fs::metadata(mounted)?.dev();
    Ok((rustix::fs::major(device) == MAJOR).then(|| rustix::fs::minor(device)))
}

/// Returns the numbers of the devices that are attached to files below `directory`.
pub(super) fn below(directory: &Path) -> Vec<u32> {
    let Ok(directory) = fs::canonicalize(directory) else { return Vec::new() };
    all().filter(|(_, file)| file.starts_with(&directory)).map(|(number, _)| number).collect()
}

/// Returns every device in use, with its file.
fn all() -> impl Iterator<Item = (u32, PathBuf)> {
    fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.strip_prefix("loop")?.parse().ok()?;
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        Some((number, PathBuf::from(file.trim_end_matches('\n'))))
    })
}
