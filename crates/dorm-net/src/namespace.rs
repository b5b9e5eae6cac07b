//! Network namespaces by path, by the convention of `ip netns`: create one, execute work in it,
//! check that it exists, remove its name.

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::Builder;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use tokio::sync::oneshot;

// The type of the file system that contains namespaces.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Creates a namespace with a name. A plain file of this name, left from before a restart of the
/// host, is used.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::create_dir_all(directory)?;
    share(directory)?;
    std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o0).open(path)?;
    in_a_new_one(|| mount_bind("/proc/thread-self/ns/net", path))??;
    Ok(())
}

/// Ensures that each mount namespace with a copy of the directory sees when a name in it is added
/// or removed. A mounted name that remained elsewhere would keep its namespace.
fn share(directory: &Path) -> io::Result<()> {
    let share = || mount_change(directory, MountPropagationFlags::SHARED | MountPropagationFlags::REC);
    match share() {
        // It is no mount point yet.
        Err(Errno::INVAL) => {
            mount_bind_recursive(directory, directory)?;
            Ok(share()?)
        }
        shared => Ok(shared?),
    }
}

/// Executes `work` in the namespace, on a thread of its own that ends with it.
pub(crate) fn inside<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name("dorm-net".into()).spawn_scoped(scope, || {
            enter(namespace)?;
            Ok(work())
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
    })
}

/// Executes `work` in a new namespace, which ends with it.
pub(crate) fn in_a_new_one<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name("dorm-net".into()).spawn_scoped(scope, || {
            unshare_network()?;
            Ok(work())
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
    })
}

#[allow(unsafe_code)]
fn unshare_network() -> io::Result<()> {
    // SAFETY: this flag unshares no file descriptors, and the thread is the caller's own.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Like [`inside`], for a caller that must not block.
pub(crate) async fn inside_soon<T: Send + 'static>(
    namespace: &Path,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (send, receive) = oneshot::channel();
    let namespace = namespace.to_owned();
    Builder::new().name("dorm-net".into()).spawn(move || {
        let _ = send.send(enter(&namespace).map(|()| work()));
    })?;
    receive.await.unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
}

/// Returns whether `path` is a namespace. A plain file left from before a restart of the host is
/// not.
pub(crate) fn exists(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| u64::try_from(found.f_type) == Ok(NSFS_MAGIC))
}

/// Removes the name of a namespace; the namespace itself ends with its last process and socket. A
/// missing name is no error.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match unmount(path, UnmountFlags::DETACH) {
        // INVAL: a plain file, which is removed as well.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn enter(namespace: &Path) -> io::Result<()> {
    let file = std::fs::File::open(namespace)?;
    Ok(move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))?)
}
