//! The unit and the code have the same lists, and what is given up cannot be regained.

use std::collections::BTreeSet;

use super::{capabilities, syscalls};

/// Returns every value of `key` in the unit, split into words.
fn unit(key: &str) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/dormouse.service");
    let text = std::fs::read_to_string(path).unwrap().replace("\\\n", " ");
    let values = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    values.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[test]
fn the_unit_keeps_the_same_capabilities() {
    let named: BTreeSet<_> = unit("CapabilityBoundingSet").into_iter().collect();
    let expected: BTreeSet<_> = capabilities::KEPT.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(named, expected);
}

#[test]
fn the_unit_denies_the_same_system_calls() {
    let mut named = unit("SystemCallFilter");
    assert_eq!(named[0].chars().next(), Some('~'), "a list of what is denied");
    named[0].remove(0);
    let expected: Vec<_> = syscalls::DENIED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(named, expected);
    assert_eq!(unit("SystemCallErrorNumber"), ["EPERM"]);
}

/// Runs `work` in a confined thread that then ends, so that only this thread is restricted.
fn confined<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        capabilities::reduce().unwrap();
        rustix::thread::set_no_new_privs(true).unwrap();
        syscalls::deny().unwrap();
        work()
    });
    thread.join().unwrap()
}

#[test]
fn a_confined_thread_and_its_children_keep_no_more() {
    let status = confined(|| {
        let output = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    });
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim();
    let kept = capabilities::kept().bits();
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(u64::from_str_radix(value(set), 16).unwrap() & !kept, 0, "{set}");
    }
    assert_eq!([value("CapInh:"), value("CapAmb:")].map(|set| set.trim_matches('0')), ["", ""]);
    assert_eq!([value("NoNewPrivs:"), value("Seccomp:")], ["1", "2"]);
}

#[test]
#[allow(unsafe_code)]
fn each_denied_system_call_fails_before_its_arguments_are_looked_at() {
    let errors = confined(|| {
        let call = |(name, number): &(&'static str, libc::c_long)| {
            // SAFETY: each argument is zero or minus one, which no call takes for a valid pointer.
            let done = unsafe { libc::syscall(*number, -1_i64, 0_i64, 0_i64, 0_i64, 0_i64, 0_i64) };
            (*name, done, std::io::Error::last_os_error().raw_os_error())
        };
        // These two are not called: without the filter they could do harm even with these
        // arguments.
        let harmless = |(name, _): &&(&str, libc::c_long)| !["reboot", "vhangup"].contains(name);
        syscalls::DENIED.iter().filter(harmless).map(call).collect::<Vec<_>>()
    });
    for (name, done, error) in errors {
        assert_eq!((done, error), (-1, Some(libc::EPERM)), "{name}");
    }
}
