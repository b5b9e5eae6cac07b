//! Checks of the kernel, `runsc`, control groups, loop devices and KVM.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use dorm_cgroup::Version;
use dorm_engine_gvisor::{Probe, TrialOutcome};

use super::Check;

/// The next step if a build of `runsc` is not supported. Only the memory images of one release can
/// be read, and Dormouse ships a build of it.
const SUPPORTED: &str = "use dorm-runsc, which Dormouse ships, or runsc of gVisor release 20240729.0";

/// The first kernel with `openat2`, which keeps paths of sandboxes inside their directory.
const KERNEL_LEAST: (u32, u32) = (5, 6);

/// Checks the first of the programs `runsc` that can be executed here, which is the one that the
/// daemon would use.
pub(super) fn checks(runsc: &[PathBuf], data: &Path) -> Vec<Check> {
    let (mut probe, mut passed_over) =
        (dorm_engine_gvisor::probe(runsc.first().map_or(Path::new("runsc"), |first| first)), None);
    for next in runsc.iter().skip(1) {
        let Some(reason) = unfitness(&probe, data) else { break };
        passed_over = Some(format!("{} is not used: {reason}", probe.runsc.display()));
        probe = dorm_engine_gvisor::probe(next);
    }
    let table = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").ok();
    vec![
        root(),
        kernel(&probe.kernel),
        runsc_itself(&probe),
        memory_images(&probe),
        restored_memory(&probe, passed_over, data),
        groups(&probe),
        namespaces(&probe),
        loops(),
        kvm(),
        connections(table.as_deref()),
    ]
}

fn root() -> Check {
    if rustix::process::geteuid().is_root() {
        Check::ok("user", "root")
    } else {
        Check::fail("user", "not root", "run `dorm serve` and `dorm doctor` as root: mounts and namespaces require it")
    }
}

fn kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_LEAST {
        Check::ok("kernel", release)
    } else {
        let next = format!("use Linux {}.{} or newer", KERNEL_LEAST.0, KERNEL_LEAST.1);
        Check::fail("kernel", release, next)
    }
}

fn runsc_itself(probe: &Probe) -> Check {
    let shown = probe.runsc.display();
    if let Some(error) = &probe.failure {
        let next = "install runsc, best dorm-runsc, which Dormouse ships, or give its path with --runsc";
        return Check::fail("runsc", format!("cannot execute {shown}: {error}"), next);
    }
    if !probe.missing.is_empty() {
        let missing = probe.missing.join(", ");
        return Check::fail("runsc", format!("{} lacks {missing}", probe.build), SUPPORTED);
    }
    if let Some(go) = probe.unfit_go() {
        return Check::fail(
            "runsc",
            probe.unfit(go),
            "use dorm-runsc, which Dormouse ships, or a build of this release by a Go before 1.25",
        );
    }
    age(&probe.build, probe.released.as_deref(), jiff::Timestamp::now())
}

/// Returns why the daemon would not use our own build.
fn unfitness(probe: &Probe, data: &Path) -> Option<String> {
    if let Some(error) = &probe.failure {
        return Some(error.to_string());
    }
    match dorm_engine_gvisor::trial_outcome(&data.join("gvisor"), probe) {
        TrialOutcome::Failed(reason) if probe.is_ours() => Some(reason),
        _ => probe.unfit_go().map(|go| probe.unfit(go)),
    }
}

/// Checks where the memory of resumed sandboxes is. `passed_over` is the build that would map it
/// from the sleep image, but cannot be used.
fn restored_memory(probe: &Probe, passed_over: Option<String>, data: &Path) -> Check {
    const NAME: &str = "restored memory";
    if let Some(reason) = passed_over {
        return Check::warn(
            NAME,
            reason,
            "remove the cause and restart the daemon; until then resumes read all memory",
        );
    }
    if !probe.is_ours() {
        return Check::ok(NAME, "read before a sandbox continues; dorm-runsc would map it from the sleep image");
    }
    match dorm_engine_gvisor::trial_outcome(&data.join("gvisor"), probe) {
        TrialOutcome::Succeeded => Check::ok(NAME, "mapped from the sleep image until it is written"),
        TrialOutcome::Untried => Check::ok(NAME, "will be tried when the daemon starts"),
        TrialOutcome::Failed(reason) => Check::fail(NAME, reason, "remove the cause, or use `--runsc auto`"),
    }
}

/// Checks whether the reader of memory images, which filesystem snapshots need, knows those of this
/// build.
fn memory_images(probe: &Probe) -> Check {
    const NAME: &str = "memory images";
    match probe.format {
        Some(format) => Check::ok(NAME, format!("in the format of release {format}")),
        None if probe.build.is_empty() => {
            Check::warn(NAME, "not examined: runsc cannot be executed", "install runsc, or give its path with --runsc")
        }
        None => {
            let found = format!("the format of {} is not known: filesystem snapshots can fail", probe.build);
            Check::warn(NAME, found, SUPPORTED)
        }
    }
}

/// After this many days without an update, a build lacks fixes.
const OLD_DAYS: i64 = 183;

fn age(build: &str, released: Option<&str>, now: jiff::Timestamp) -> Check {
    const NEXT: &str = "update Dormouse, which ships dorm-runsc: memory images of gVisor releases other than \
                        20240729.0 cannot be read (docs/operations.md)";
    let day = released.and_then(|day| day.parse::<jiff::civil::Date>().ok());
    let Some(day) = day else {
        let found = format!("{build}; its version has no release date");
        return Check::warn("runsc", found, NEXT);
    };
    let today = now.to_zoned(jiff::tz::TimeZone::UTC).date();
    let days = (today - day).get_days().max(0);
    let found = format!("{build}, released on {day}");
    if i64::from(days) > OLD_DAYS {
        return Check::warn("runsc", format!("{found}, {days} days ago: it lacks later fixes"), NEXT);
    }
    Check::ok("runsc", found)
}

fn groups(probe: &Probe) -> Check {
    const NAME: &str = "cgroups";
    const NEXT: &str = "mount cgroup2 on /sys/fs/cgroup, or the controllers of cgroup v1";
    let support = match &probe.groups {
        Ok(support) => support,
        Err(error) => return Check::fail(NAME, error.to_string(), NEXT),
    };
    if let Err(reason) = &support.can_create {
        return Check::fail(
            NAME,
            format!("cannot create a group: {reason}"),
            "allow this user to create groups, or run as root",
        );
    }
    let offered = support.controllers.iter().filter_map(|(controller, version)| {
        let version = match (*version)? {
            Version::V1 => "v1",
            Version::V2 => "v2",
        };
        Some(format!("{controller:?} {version}").to_lowercase())
    });
    let offered = offered.collect::<Vec<_>>().join(", ");
    let lost: Vec<_> =
        support.missing().map(|controller| format!("{controller:?} is missing: {}", controller.loss())).collect();
    match (support.is_enough(), lost.is_empty()) {
        (true, true) => Check::ok(NAME, offered),
        (true, false) => Check::warn(NAME, lost.join("; "), NEXT),
        (false, _) => Check::fail(NAME, lost.join("; "), NEXT),
    }
}

fn namespaces(probe: &Probe) -> Check {
    if probe.has_user_namespaces {
        Check::ok("user namespaces", "allowed")
    } else {
        Check::fail("user namespaces", "not allowed", "set the sysctl user.max_user_namespaces above 0")
    }
}

fn loops() -> Check {
    match OpenOptions::new().read(true).write(true).open("/dev/loop-control") {
        Ok(_) => Check::ok("loop devices", "/dev/loop-control can be opened"),
        Err(error) => {
            let next = "load the loop module and allow opening /dev/loop-control: each sandbox's disk is a loop device";
            Check::fail("loop devices", format!("cannot open /dev/loop-control: {error}"), next)
        }
    }
}

/// Checks whether the host's connection table has room for the connections of many sandboxes.
fn connections(table: Option<&str>) -> Check {
    const NAME: &str = "connections";
    const SANDBOXES: u64 = 64;
    let each = 2 * u64::from(dorm_net::TrafficLimits::default().connections.get());
    let Some(text) = table else {
        return Check::ok(NAME, "the host has no connection table before the first sandbox");
    };
    let most = text.trim().parse::<u64>().unwrap_or(0);
    let found =
        format!("the host's connection table has room for {most} connections, enough for {} sandboxes", most / each);
    if most >= SANDBOXES * each {
        return Check::ok(NAME, found);
    }
    let next = format!(
        "set the sysctl net.netfilter.nf_conntrack_max to {} or more, or lower `dorm serve --network-connections`",
        SANDBOXES * each
    );
    Check::warn(NAME, found, next)
}

fn kvm() -> Check {
    // A device that can be opened may still not work, so its presence decides nothing.
    if Path::new("/dev/kvm").exists() {
        Check::ok("kvm", "/dev/kvm exists, but may not work; not required")
    } else {
        Check::ok("kvm", "absent; not required")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_small_table_of_connections_is_a_warning() {
        assert_eq!(connections(Some("262144\n")).verdict, Verdict::Ok);
        let check = connections(Some("65536\n"));
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.contains("for 16 sandboxes") && check.next_step.contains("262144"), "{check:?}");
    }

    #[test]
    fn a_runsc_older_than_six_months_is_a_warning_with_a_next_step() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let verdict = |released| age("runsc release-1 ab", released, now);
        assert_eq!(verdict(Some("2026-06-01")).verdict, Verdict::Ok);
        assert_eq!(verdict(Some("2026-12-01")).verdict, Verdict::Ok, "the host's clock is behind");
        let old = verdict(Some("2026-05-01"));
        assert_eq!(old.verdict, Verdict::Warn);
        assert!(old.found.contains("2026-05-01, 207 days ago") && old.next_step.contains("operations.md"), "{old:?}");
        assert_eq!(verdict(None).verdict, Verdict::Warn);
    }

    #[test]
    fn a_build_that_is_passed_over_is_a_warning_with_its_reason() {
        let data = tempfile::tempdir().unwrap();
        let missing = Path::new("/nonexistent/dorm-runsc");
        let reason = unfitness(&dorm_engine_gvisor::probe(missing), data.path());
        assert!(reason.is_some(), "it cannot be executed");
        let stock = dorm_engine_gvisor::probe(Path::new("/nonexistent/runsc"));
        let check = restored_memory(&stock, reason, data.path());
        assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
        assert_eq!(restored_memory(&stock, None, data.path()).verdict, Verdict::Ok);
    }

    #[test]
    fn an_old_kernel_and_a_missing_runsc_fail_with_a_next_step() {
        assert_eq!(kernel("5.4.0-100-generic").verdict, Verdict::Fail);
        assert_eq!(kernel("5.10.0").verdict, Verdict::Ok);
        let check = runsc_itself(&dorm_engine_gvisor::probe(Path::new("/nonexistent/runsc")));
        assert_eq!(check.verdict, Verdict::Fail);
        assert!(check.found.contains("/nonexistent/runsc") && check.next_step.contains("--runsc"), "{check:?}");
    }
}
