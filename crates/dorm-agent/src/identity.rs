//! Applies the identity of a new run. Before any other request, the sandbox has its new generation
//! and fresh randomness, and its own programs are notified: first those that run and listen for it
//! ([`crate::listeners`]), then those that are started for it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dorm_agent_proto::{
    Answer, Applied, ExitStatus, Failure, GuestPath, GuestString, Hook, HookOutcome, Identity, ProcessSpec, Resumed,
    Signal, Target, Variable,
};
use rustix::time::{ClockId, Timespec, clock_settime};

use crate::agent::Agent;
use crate::call::Call;
use crate::fault;
use crate::link::Gone;
use crate::listeners;
use crate::lock::lock;

const DIRECTORY: &str = "run/dormouse";
const LISTENERS: &str = "run/dormouse/on-resume.d";
const SANDBOX_VARIABLE: &str = "DORMOUSE_SANDBOX";
const HOOKS_TIME_MAX: Duration = Duration::from_secs(10);
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);

/// Applies an identity and sends the result.
pub(crate) fn take(agent: &Arc<Agent>, call: &Call, identity: &Identity) -> Result<(), Gone> {
    call.answer(&resumed(agent, identity).map(Answer::Resumed))
}

fn resumed(agent: &Agent, identity: &Identity) -> Result<Resumed, Failure> {
    let _alone = lock(&agent.resuming);
    let entropy = applied(OpenOptions::new().write(true).open("/dev/urandom").and_then(|mut storage| {
        // Writing adds to the kernel's existing entropy.
        storage.write_all(&identity.entropy)
    }));
    write_identity(&agent.root, identity)?;
    lock(&agent.variables).clone_from(&identity.variables);
    // Only now: a service that is started again gets these variables.
    agent.services.resume();
    agent.generation.store(identity.generation, Ordering::Release);
    // An agent that is not the first process runs in a test and must not change its host.
    let (hostname, clock) = if rustix::process::getpid().is_init() {
        (set_hostname(&identity.hostname), set_clock(identity.unix_time_us))
    } else {
        (Applied::NotNeeded, Applied::NotNeeded)
    };
    let line = format!("{} {}\n", identity.generation, sandbox(identity));
    let mut hooks = listeners::tell(&agent.root.join(LISTENERS), &line);
    hooks.extend(run_hooks(agent, identity.generation));
    Ok(Resumed { hostname, clock, entropy, hooks })
}

fn applied(result: io::Result<()>) -> Applied {
    match result {
        Ok(()) => Applied::Yes,
        Err(error) => Applied::Refused(error.to_string()),
    }
}

/// Returns the ID of the sandbox: generations alone do not distinguish the children of a fork.
fn sandbox(identity: &Identity) -> String {
    let own = identity.variables.iter().find(|variable| variable.name().as_bytes() == SANDBOX_VARIABLE.as_bytes());
    own.map_or_else(|| identity.hostname.clone(), |own| String::from_utf8_lossy(own.value().as_bytes()).into_owned())
}

fn write_identity(root: &Path, identity: &Identity) -> Result<(), Failure> {
    let made = fs::create_dir_all(root.join(DIRECTORY)).and_then(|()| listeners::make_directory(&root.join(LISTENERS)));
    made.map_err(|error| fault::other("create the directory", DIRECTORY.as_bytes(), error))?;
    write_whole(root, "sandbox", &sandbox(identity))?;
    write_whole(root, "generation", &identity.generation.to_string())
}

/// Writes a line atomically: readers see the old line or the new one.
fn write_whole(root: &Path, name: &str, line: &str) -> Result<(), Failure> {
    let directory = root.join(DIRECTORY);
    let path = directory.join(name);
    let temporary = directory.join(format!(".{name}"));
    fs::write(&temporary, format!("{line}\n"))
        .and_then(|()| fs::rename(&temporary, &path))
        .map_err(|error| fault::other("write", path.as_os_str().as_encoded_bytes(), error))
}

fn set_hostname(hostname: &str) -> Applied {
    if rustix::system::uname().nodename().to_bytes() == hostname.as_bytes() {
        return Applied::NotNeeded;
    }
    applied(rustix::system::sethostname(hostname.as_bytes()).map_err(io::Error::from))
}

fn set_clock(unix_time_us: u64) -> Applied {
    let told = Duration::from_micros(unix_time_us);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if now.abs_diff(told) < CLOCK_TOLERANCE {
        return Applied::NotNeeded;
    }
    let Ok(tv_sec) = i64::try_from(told.as_secs()) else {
        return Applied::Refused("the time is out of range".to_owned());
    };
    let time = Timespec { tv_sec, tv_nsec: i64::from(told.subsec_nanos()) };
    applied(clock_settime(ClockId::Realtime, time).map_err(io::Error::from))
}

fn run_hooks(agent: &Agent, generation: u64) -> Vec<Hook> {
    let deadline = Instant::now() + HOOKS_TIME_MAX;
    let mut hooks = Vec::new();
    for path in hook_paths(&agent.root.join("etc/dormouse/on-resume.d")) {
        let Ok(guest_path) = GuestPath::try_from(path.as_path()) else { continue };
        let outcome = if Instant::now() < deadline {
            run_hook(agent, &guest_path, generation, deadline)
        } else {
            HookOutcome::TimedOut
        };
        hooks.push(Hook { path: guest_path, outcome });
    }
    hooks
}

fn hook_paths(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| fs::metadata(path).is_ok_and(|at| at.is_file() && at.permissions().mode() & 0o111 != 0))
        .collect();
    paths.sort();
    paths
}

fn run_hook(agent: &Agent, path: &GuestPath, generation: u64, deadline: Instant) -> HookOutcome {
    let started = GuestString::new(path.as_bytes())
        .and_then(|command| {
            let mut spec = ProcessSpec::new(vec![command]);
            spec.variables.push(Variable::new("DORMOUSE_GENERATION", generation.to_string())?);
            spec.label = Some("on-resume".to_owned());
            Ok(spec)
        })
        .map_err(|error| Failure::Invalid { reason: error.to_string() })
        .and_then(|spec| agent.start(spec));
    let process = match started {
        Ok(started) => started.process,
        Err(failure) => return HookOutcome::NotStarted(failure.to_string()),
    };
    match agent.processes.wait_until(process, deadline) {
        Some(ExitStatus::Code(0)) => HookOutcome::Done,
        Some(status) => HookOutcome::Failed(status.shell_code()),
        None => {
            drop(agent.processes.signal(process, Signal::KILL, Target::Group));
            HookOutcome::TimedOut
        }
    }
}
