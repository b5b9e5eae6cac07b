//! System calls that neither the daemon nor a program that it starts ever makes, and that an
//! attacker in one of them would try: they change the host's kernel, clock or power, or reach parts
//! of the kernel with a record of vulnerabilities.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::ConfineError;

/// Expands to the names and numbers of the system calls.
macro_rules! calls {
    ($($name:ident => $number:ident),* $(,)?) => { &[$((stringify!($name), libc::$number)),*] };
}

/// The system calls that fail with `EPERM`.
pub(crate) const DENIED: &[(&str, libc::c_long)] = calls![
    acct => SYS_acct,
    add_key => SYS_add_key,
    adjtimex => SYS_adjtimex,
    bpf => SYS_bpf,
    clock_adjtime => SYS_clock_adjtime,
    clock_settime => SYS_clock_settime,
    delete_module => SYS_delete_module,
    fanotify_init => SYS_fanotify_init,
    finit_module => SYS_finit_module,
    init_module => SYS_init_module,
    io_uring_enter => SYS_io_uring_enter,
    io_uring_register => SYS_io_uring_register,
    io_uring_setup => SYS_io_uring_setup,
    ioperm => SYS_ioperm,
    iopl => SYS_iopl,
    kexec_file_load => SYS_kexec_file_load,
    kexec_load => SYS_kexec_load,
    keyctl => SYS_keyctl,
    open_by_handle_at => SYS_open_by_handle_at,
    perf_event_open => SYS_perf_event_open,
    quotactl => SYS_quotactl,
    quotactl_fd => SYS_quotactl_fd,
    reboot => SYS_reboot,
    request_key => SYS_request_key,
    settimeofday => SYS_settimeofday,
    swapoff => SYS_swapoff,
    swapon => SYS_swapon,
    syslog => SYS_syslog,
    userfaultfd => SYS_userfaultfd,
    vhangup => SYS_vhangup,
];

/// The same calls under the x32 ABI, which some kernels have.
const X32: libc::c_long = 0x4000_0000;

/// Installs the filter in the calling thread.
pub(super) fn deny() -> Result<(), ConfineError> {
    let program = program().map_err(|error| ConfineError::Filter(error.into()))?;
    seccompiler::apply_filter(&program).map_err(ConfineError::Filter)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let numbers = DENIED.iter().flat_map(|(_, number)| [*number, *number | X32]);
    let rules: BTreeMap<i64, Vec<_>> = numbers.map(|number| (number, Vec::new())).collect();
    let denied = libc::EPERM.unsigned_abs();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(denied), TargetArch::x86_64)?;
    let mut program = BpfProgram::try_from(filter)?;
    // A call through the ABI of another architecture only fails. Killing the process would take
    // precedence over what gVisor's own filter does about a guest that makes such a call.
    for instruction in &mut program {
        if instruction.k == libc::SECCOMP_RET_KILL_PROCESS {
            instruction.k = libc::SECCOMP_RET_ERRNO | denied;
        }
    }
    Ok(program)
}
