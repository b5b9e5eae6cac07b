//! The lifecycle matrix under the restrictions of `packaging/dormouse.service`, without systemd:
//! the test reads the unit and applies its settings to the daemon's process, as systemd would.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::matrix::Gvisor;

/// The words of each line of `[Service]`.
fn service() -> BTreeMap<String, Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/dormouse.service");
    let text = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
    let section = text.split("[Service]").nth(1).unwrap().split("\n[").next().unwrap().to_owned();
    let lines = section.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line: &str| {
        let (key, value) = line.split_once('=').unwrap();
        (key.to_owned(), value.split_whitespace().map(str::to_owned).collect())
    };
    let lines: Vec<(String, Vec<String>)> = lines.map(pair).collect();
    let service: BTreeMap<_, _> = lines.iter().cloned().collect();
    assert_eq!(service.len(), lines.len(), "a key comes twice");
    service
}

/// The settings that [`restrict`] applies; after them those that systemd applies outside of the
/// process.
const DONE: [&str; 9] = [
    "CapabilityBoundingSet",
    "LimitCORE",
    "LimitNOFILE",
    "NoNewPrivileges",
    "OOMScoreAdjust",
    "RestrictAddressFamilies",
    "RestrictRealtime",
    "SystemCallErrorNumber",
    "SystemCallFilter",
];
const AROUND: [&str; 11] = [
    "Delegate",
    "EnvironmentFile",
    "ExecStart",
    "KillMode",
    "Restart",
    "RestartSec",
    "StateDirectory",
    "StateDirectoryMode",
    "TasksMax",
    "TimeoutStopSec",
    "Type",
];

#[test]
fn every_line_of_the_unit_is_known_here() {
    let known: BTreeSet<String> = DONE.iter().chain(&AROUND).map(|key| (*key).to_owned()).collect();
    assert_eq!(service().into_keys().collect::<BTreeSet<_>>(), known, "do it in `restrict`, or say that it is around");
    let service = service();
    assert_eq!([&service["Delegate"], &service["KillMode"]], [&["yes"], &["process"]]);
    assert_eq!([&service["NoNewPrivileges"], &service["RestrictRealtime"]], [&["yes"], &["yes"]]);
    let limit: u64 = service["TimeoutStopSec"][0].parse().unwrap();
    assert!(limit > 60, "the daemon ends itself after 60 s");
}

/// The number of a system call that the unit names.
fn number(name: &str) -> i64 {
    macro_rules! numbers {
        ($($name:ident => $number:ident),* $(,)?) => { match name { $(stringify!($name) => libc::$number,)* _ => panic!("{name}: add its number") } };
    }
    numbers![
        acct => SYS_acct, add_key => SYS_add_key, adjtimex => SYS_adjtimex, bpf => SYS_bpf,
        clock_adjtime => SYS_clock_adjtime, clock_settime => SYS_clock_settime, delete_module => SYS_delete_module,
        fanotify_init => SYS_fanotify_init, finit_module => SYS_finit_module, init_module => SYS_init_module,
        io_uring_enter => SYS_io_uring_enter, io_uring_register => SYS_io_uring_register,
        io_uring_setup => SYS_io_uring_setup, ioperm => SYS_ioperm, iopl => SYS_iopl,
        kexec_file_load => SYS_kexec_file_load, kexec_load => SYS_kexec_load, keyctl => SYS_keyctl,
        open_by_handle_at => SYS_open_by_handle_at, perf_event_open => SYS_perf_event_open, quotactl => SYS_quotactl,
        quotactl_fd => SYS_quotactl_fd, reboot => SYS_reboot, request_key => SYS_request_key,
        settimeofday => SYS_settimeofday, swapoff => SYS_swapoff, swapon => SYS_swapon, syslog => SYS_syslog,
        userfaultfd => SYS_userfaultfd, vhangup => SYS_vhangup,
    ]
}

fn family(name: &str) -> u64 {
    let number = match name {
        "AF_UNIX" => libc::AF_UNIX,
        "AF_INET" => libc::AF_INET,
        "AF_INET6" => libc::AF_INET6,
        "AF_NETLINK" => libc::AF_NETLINK,
        "AF_PACKET" => libc::AF_PACKET,
        _ => panic!("{name}: add its number"),
    };
    u64::try_from(number).unwrap()
}

fn capability(name: &str) -> CapabilitySet {
    let name = name.strip_prefix("CAP_").unwrap();
    CapabilitySet::from_name(name).unwrap_or_else(|| panic!("{name} is no capability"))
}

/// A filter that permits all system calls except `rules`, which fail with `errno`.
fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> BpfProgram {
    let errno = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, TargetArch::x86_64);
    filter.unwrap().try_into().unwrap()
}

/// `SystemCallFilter`, `RestrictAddressFamilies` and `RestrictRealtime`.
fn filters(service: &BTreeMap<String, Vec<String>>) -> [BpfProgram; 3] {
    let denied = service["SystemCallFilter"].iter().map(|name| (number(name.trim_start_matches('~')), Vec::new()));
    let is = |at, op, value| SeccompCondition::new(at, SeccompCmpArgLen::Dword, op, value).unwrap();
    let families = &service["RestrictAddressFamilies"];
    let other = families.iter().map(|name| is(0, SeccompCmpOp::Ne, family(name))).collect();
    let other = SeccompRule::new(other).unwrap();
    let realtime = [libc::SCHED_FIFO, libc::SCHED_RR].map(|policy| {
        let policy = u64::try_from(policy).unwrap();
        SeccompRule::new(vec![is(1, SeccompCmpOp::MaskedEq(3), policy)]).unwrap()
    });
    [
        filter(denied.collect(), libc::EPERM),
        filter([(libc::SYS_socket, vec![other])].into(), libc::EAFNOSUPPORT),
        filter([(libc::SYS_sched_setscheduler, realtime.into())].into(), libc::EPERM),
    ]
}

/// Applies the settings to the process in systemd's order.
#[allow(unsafe_code)]
fn restrict(command: &mut Command) {
    let service = service();
    let kept = service["CapabilityBoundingSet"].iter().fold(CapabilitySet::empty(), |all, name| all | capability(name));
    let score = service["OOMScoreAdjust"][0].clone();
    let number = |key: &str, at| service[key][0].split(':').nth(at).map(|number| number.parse::<u64>().unwrap());
    let files = [number("LimitNOFILE", 0), number("LimitNOFILE", 1)];
    assert_eq!(number("LimitCORE", 0), Some(0));
    let filters = filters(&service);
    // SAFETY: everything was allocated before; between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            // A host that forbids this cannot test its effect.
            match std::fs::write("/proc/self/oom_score_adj", score.as_bytes()) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                _ => {}
            }
            rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
            let most = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
            let [soft, hard] = files.map(|files| files.map(|files| files.min(most)));
            rustix::process::setrlimit(Resource::Nofile, Rlimit { current: soft, maximum: hard })?;
            for bit in 0..64 {
                let one = CapabilitySet::from_bits_retain(1 << bit);
                if !kept.contains(one) && matches!(rustix::thread::capability_is_in_bounding_set(one), Ok(true)) {
                    rustix::thread::remove_capability_from_bounding_set(one)?;
                }
            }
            rustix::thread::set_no_new_privs(true)?;
            for filter in &filters {
                seccompiler::apply_filter(filter).map_err(|_| io::Error::last_os_error())?;
            }
            Ok(())
        });
    }
}

dorm_testing::matrix_tests!(Gvisor::prepared(restrict));
