//! Gives up everything that reading, computing and writing do not need. Each layer holds without
//! the others:
//!
//! | layer | what it removes |
//! |---|---|
//! | namespaces of mounts, network, IPC, names and users | sockets, and everything that other processes share |
//! | an empty, read-only root | every file and directory |
//! | another user and no group | every process of the daemon, and whatever a path could still name |
//! | no capabilities, no new privileges | the rights of root |
//! | Landlock, if the kernel has it | files, TCP, abstract sockets and signals, once more |
//! | resource limits | unlimited memory, CPU time, files, descriptors and processes |
//! | a system call filter | all other system calls, and executable memory |
//!
//! All of it happens in a single-threaded process that has not read a byte of its input.

use std::collections::BTreeMap;
use std::io;
use std::os::raw::c_long;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetError, Scope,
};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid, UnshareFlags};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::limits::Limits;

/// When memory runs out, the kernel kills workers before the daemon and its sandboxes.
const OOM_SCORE: &[u8] = b"900";

fn failed<E: std::fmt::Display>(operation: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| io::Error::other(format!("cannot {operation} for a worker: {error}"))
}

/// Closes all descriptors except the three from the caller: the daemon itself may have inherited
/// some.
///
/// # Errors
/// When the kernel refuses.
pub fn close_others() -> io::Result<()> {
    // SAFETY: this runs first, when nothing in this process has a descriptor above 2.
    #[allow(unsafe_code)]
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, c_long::from(u32::MAX), 0) };
    match closed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Applies everything except resource limits and the system call filter. The process must have one
/// thread, and root's capabilities.
///
/// # Errors
/// When any layer is unavailable; hostile input must then not be read.
pub fn isolate(user: u32) -> io::Result<()> {
    // Not allowed everywhere, and nothing else depends on it.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let apart = UnshareFlags::NEWNS
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    unshare(apart).map_err(failed("create namespaces"))?;
    empty_root()?;
    become_user(user)?;
    // If user namespaces are not allowed, there is nothing that this one would remove.
    let _ = unshare(UnshareFlags::NEWUSER);
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(failed("drop capabilities"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed("forbid new privileges"))?;
    // A change of user clears it, so this comes after that. If the caller died before, its ends of
    // the pipes are closed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(failed("set the parent death signal"))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(failed("disable core dumps"))?;
    restrict().map_err(failed("set up Landlock"))
}

fn unshare(what: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of descriptors is not unshared, which is all that could be unsound.
    #[allow(unsafe_code)]
    unsafe {
        rustix::thread::unshare_unsafe(what)
    }
}

/// Makes an empty directory without write access the root, and unmounts the old root.
fn empty_root() -> io::Result<()> {
    let refused = || failed("create an empty root directory");
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(refused())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    // Every host has /proc, and nothing needs it any more.
    mount("none", "/proc", "tmpfs", flags, c"size=4k,nr_inodes=1,mode=555").map_err(refused())?;
    rustix::process::chdir("/proc").map_err(refused())?;
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => unmount(".", UnmountFlags::DETACH).map_err(refused())?,
        // The root of an initial RAM disk cannot be exchanged.
        Err(rustix::io::Errno::INVAL) => rustix::process::chroot(".").map_err(refused())?,
        Err(error) => return Err(refused()(error)),
    }
    rustix::process::chdir("/").map_err(refused())
}

fn become_user(user: u32) -> io::Result<()> {
    if user == 0 || user == u32::MAX {
        return Err(io::Error::other("a worker cannot be root"));
    }
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[]).map_err(failed("drop supplementary groups"))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed("set the group ID"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed("set the user ID"))
}

/// Forbids everything that this kernel's Landlock covers, without exceptions.
fn restrict() -> Result<(), RulesetError> {
    let abi = ABI::V6;
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .restrict_self()
        .map(drop)
}

/// Sets resource limits: no descriptor can be opened from here on.
///
/// # Errors
/// When the kernel refuses.
pub fn limit(limits: &Limits) -> io::Result<()> {
    let all = [
        (Resource::As, limits.memory_bytes),
        (Resource::Cpu, limits.cpu_seconds),
        // Does not apply to pipes.
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Nofile, 0),
        (Resource::Nproc, 0),
        (Resource::Memlock, 0),
    ];
    for (resource, most) in all {
        let most = Some(most);
        rustix::process::setrlimit(resource, Rlimit { current: most, maximum: most })
            .map_err(failed("set resource limits"))?;
    }
    Ok(())
}

/// The system calls of a worker: reading, writing and seeking in open files, memory, clocks, and
/// exit.
const CALLS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    // Of an open file, or below a root without files.
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    // A panic message contains its thread's number.
    libc::SYS_gettid,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Kills the process at every other system call, and when it makes memory executable.
///
/// # Errors
/// When the kernel does not support filters.
pub fn filter() -> io::Result<()> {
    let program = compile().map_err(failed("build the system call filter"))?;
    seccompiler::apply_filter(&program).map_err(failed("install the system call filter"))
}

fn compile() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let executes = u64::from(libc::PROT_EXEC.cast_unsigned());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let data = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(executes), 0)?;
        rules.insert(call, vec![SeccompRule::new(vec![data])?]);
    }
    // The standard library checks that a descriptor is open before it closes it.
    let looks =
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::F_GETFD.cast_unsigned().into())?;
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![looks])?]);
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch)?.try_into()
}
