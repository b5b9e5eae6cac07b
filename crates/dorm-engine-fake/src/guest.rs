//! A fake guest: its processes, files and clock as one value. Nothing in it runs on its own:
//! [`Guest::settle`] lets every process do what it can at the present time of the guest's clock,
//! and returns when to call it again. So a guest that is not settled stands still, and a guest that
//! is saved and restored continues exactly where it was.

mod bytes;
mod files;
mod process;
mod program;
mod services;
mod shell;

use std::collections::BTreeMap;

use dorm_agent_proto::{
    Account, Applied, ExitStatus, Failure, GuestMount, Hook, HookOutcome, Identity, Metrics, Parents, ProcessSpec,
    ProcessStarted, ProcessStatus, Resumed, Signal, Stdin, TerminalSize, User, Variable,
};
use dorm_engine::{Layer, MOUNTS, Mount};
use dorm_lifecycle::Resources;
use serde::{Deserialize, Serialize};

use crate::error::FakeError;

pub(crate) use files::{Files, Stamp, Volume};
pub(crate) use process::Process;
pub(crate) use program::Service;

use process::{Flushed, Ring};
use program::{Input, PROGRAM_MEMORY, Program, Progress, Surroundings};

/// The number of ended processes that are remembered.
const ENDED_KEPT: usize = 4096;
/// The number of steps of one process before the others get their turn.
const STEPS: usize = 64;
const HOOKS: &str = "/etc/dormouse/on-resume.d";

/// The whole content of one sandbox except its files, which are saved in a file of their own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Guest {
    pub(crate) generation: u64,
    hostname: String,
    variables: Vec<Variable>,
    /// The time this guest has run, in microseconds; it does not advance while the guest is paused.
    pub(crate) clock_us: u64,
    /// The difference between `clock_us` and the time since 1970.
    unix_offset_us: u64,
    next_pid: u32,
    next_handle: u64,
    cpu_us: u64,
    memory_bytes: u64,
    processes_most: u32,
    processes: BTreeMap<u64, Process>,
    #[serde(default)]
    services: services::Services,
    /// The volumes mounted in the guest.
    #[serde(default)]
    pub(crate) mounts: Vec<GuestMount>,
    /// The host directories in its container slots.
    #[serde(skip)]
    slots: Vec<Mount>,
    #[serde(skip)]
    pub(crate) files: Files,
}

/// The result of settling.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settled {
    /// When there is more to do, in microseconds of the guest's clock; `None` if no process waits
    /// for the clock.
    pub(crate) wake_us: Option<u64>,
    pub(crate) moved: Moved,
}

/// Whether any process made progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    Yes,
    No,
}

impl Guest {
    /// Returns a guest that has just booted.
    pub(crate) fn boot(resources: &Resources, unix_us: u64) -> Self {
        let unix_ms = i64::try_from(unix_us / 1000).unwrap_or(i64::MAX);
        Self {
            generation: 0,
            hostname: "sandbox".to_owned(),
            variables: Vec::new(),
            clock_us: 0,
            unix_offset_us: unix_us,
            next_pid: 2,
            next_handle: 1,
            cpu_us: 1000,
            memory_bytes: resources.memory_bytes,
            processes_most: resources.processes,
            processes: BTreeMap::new(),
            services: BTreeMap::new(),
            mounts: Vec::new(),
            slots: Vec::new(),
            files: Files::of_an_image(resources.disk_bytes, unix_ms),
        }
    }

    /// Applies `layers`, the topmost first, to its files.
    pub(crate) fn add_layers(&mut self, layers: &[Layer]) -> Result<(), FakeError> {
        for Layer { directory, .. } in layers.iter().rev() {
            let wrong = |source| FakeError::File { path: directory.clone(), source };
            self.files.add_layer(directory).map_err(wrong)?;
        }
        Ok(())
    }

    /// Sets the limits of a new run.
    pub(crate) fn limit(&mut self, resources: &Resources) {
        self.memory_bytes = resources.memory_bytes;
        self.processes_most = resources.processes;
        self.files.set_room(resources.disk_bytes);
    }

    /// Replaces the host directories in its container slots.
    pub(crate) fn see(&mut self, slots: Vec<Mount>) {
        self.slots = slots;
        self.show_volumes();
    }

    /// Returns the labels of the living processes.
    pub(crate) fn labels(&self) -> Vec<String> {
        let going = self.processes.values().filter(|process| process.exit.is_none());
        going.filter_map(|process| process.spec.label.clone()).collect()
    }

    /// Mounts the volumes in these slots at these paths, and no others.
    pub(crate) fn mount(&mut self, mounts: Vec<GuestMount>) -> Result<(), Failure> {
        let stamp = self.stamp();
        for mount in mounts.iter().filter(|mount| !self.mounts.contains(mount)) {
            self.files.make_directory(&mount.path, Parents::Create, stamp)?;
        }
        self.mounts = mounts;
        self.show_volumes();
        Ok(())
    }

    fn show_volumes(&mut self) {
        let from = |mount: &GuestMount| {
            let slot = self.slots.iter().find(|slot| mount.from.to_text() == format!("{MOUNTS}/{}", slot.slot))?;
            Some(Volume::new(&mount.path, slot))
        };
        let volumes = self.mounts.iter().filter_map(from).collect();
        self.files.set_volumes(volumes);
    }

    /// Lets every process make as much progress as it can now.
    pub(crate) fn settle(&mut self) -> Settled {
        let mut all = Moved::No;
        loop {
            let mut moved = false;
            let mut wake: Option<u64> = None;
            let living: Vec<u64> =
                self.processes.values().filter(|process| process.exit.is_none()).map(|p| p.handle).collect();
            for handle in living {
                let progress = self.step(handle);
                if let Some(limit) = self.limit_of(handle) {
                    wake = Some(wake.map_or(limit, |sooner| sooner.min(limit)));
                }
                match progress {
                    Progress::Moved | Progress::Exited(_) => moved = true,
                    Progress::Waits => {}
                    Progress::WaitsUntil(at) => wake = Some(wake.map_or(at, |sooner| sooner.min(at))),
                }
            }
            let (services_moved, due) = self.settle_services();
            moved |= services_moved == Moved::Yes;
            wake = [wake, due].into_iter().flatten().min();
            if !moved {
                return Settled { wake_us: wake, moved: all };
            }
            all = Moved::Yes;
        }
    }

    /// Returns when a living process is killed, if it has a limit.
    fn limit_of(&self, handle: u64) -> Option<u64> {
        self.processes.get(&handle).filter(|process| process.exit.is_none())?.limit_us
    }

    fn step(&mut self, handle: u64) -> Progress {
        let (stamp, unix_ms) = (self.stamp(), self.unix_us() / 1000);
        let Some(process) = self.processes.get_mut(&handle) else { return Progress::Waits };
        if process.limit_us.is_some_and(|limit| limit <= self.clock_us) {
            process.exit = Some(ExitStatus::Signal(Signal::KILL.number()));
            process.timed_out = true;
            self.forget_old();
            return Progress::Moved;
        }
        match (process.flush(unix_ms), process.ending) {
            (Flushed::All, None) => {}
            (Flushed::All, Some(status)) => {
                process.exit = Some(status);
                self.forget_old();
                return Progress::Moved;
            }
            (Flushed::Some, _) => return Progress::Moved,
            (Flushed::Nothing, _) => return Progress::Waits,
        }
        let mut around = Surroundings {
            files: &mut self.files,
            now_us: self.clock_us,
            stamp: Stamp { uid: process.uid, gid: process.gid, ..stamp },
            pid: process.pid,
            hostname: &self.hostname,
            variables: &mut process.variables,
            directory: &mut process.directory,
            input: &mut process.input,
            out: Vec::new(),
            err: Vec::new(),
        };
        let mut progress = Progress::Moved;
        for _ in 0..STEPS {
            progress = process.program.step(&mut around);
            self.cpu_us += 1;
            if progress != Progress::Moved {
                break;
            }
        }
        let (out, err) = (around.out, around.err);
        process.print(&out, &err);
        services::add_to_log(&mut self.services, handle, &out, &err);
        let printed = if out.is_empty() && err.is_empty() { Moved::No } else { Moved::Yes };
        match (progress, printed) {
            (Progress::Exited(code), _) => {
                process.ending = Some(ExitStatus::Code(code & 255));
                Progress::Moved
            }
            // The output is flushed at the next step of the process.
            (Progress::Waits | Progress::WaitsUntil(_), Moved::Yes) => Progress::Moved,
            (progress, _) => progress,
        }
    }

    fn forget_old(&mut self) {
        let ended: Vec<u64> = self.processes.values().filter(|p| p.exit.is_some()).map(|p| p.handle).collect();
        for handle in ended.iter().take(ended.len().saturating_sub(ENDED_KEPT)) {
            self.processes.remove(handle);
        }
    }

    pub(crate) fn start(&mut self, spec: ProcessSpec) -> Result<ProcessStarted, Failure> {
        let command = spec
            .arguments
            .first()
            .cloned()
            .ok_or_else(|| Failure::Invalid { reason: "a process without a command".to_owned() })?;
        let living = self.processes.values().filter(|process| process.exit.is_none()).count();
        if living as u64 >= u64::from(self.processes_most) {
            let reason = "too many processes".to_owned();
            return Err(Failure::CannotExecute { command, reason });
        }
        let user = spec.user.clone().unwrap_or(User::Id { uid: 0, gid: Some(0) });
        let account = self.account(&user)?;
        let directory = match &spec.directory {
            Some(path) => {
                self.files.list(path, 1)?;
                path.to_text()
            }
            None => match self.files.list(&account.home, 1) {
                Ok(_) => account.home.to_text(),
                Err(_) => "/".to_owned(),
            },
        };
        let variables = self.environment(&account, &spec.variables);
        let stamp = Stamp { uid: account.uid, gid: account.gid, ..self.stamp() };
        let words: Vec<String> = spec.arguments.iter().map(|word| word.to_text()).collect();
        let pid = self.next_pid;
        let mut process = Process {
            handle: self.next_handle,
            pid,
            program: Program::Cat,
            variables,
            directory,
            uid: account.uid,
            gid: account.gid,
            input: Input { bytes: Vec::new(), open: spec.terminal.is_some() || matches!(spec.stdin, Stdin::Pipe) },
            stdout: Ring::new(spec.output_kept),
            stderr: Ring::new(spec.output_kept),
            marks: Vec::new(),
            started_unix_ms: self.unix_us() / 1000,
            exit: None,
            limit_us: None,
            timed_out: false,
            ending: None,
            held_out: Vec::new(),
            held_err: Vec::new(),
            read: false,
            readers: BTreeMap::new(),
            spec,
        };
        let mut around = Surroundings {
            files: &mut self.files,
            now_us: self.clock_us,
            stamp,
            pid,
            hostname: &self.hostname,
            variables: &mut process.variables,
            directory: &mut process.directory,
            input: &mut process.input,
            out: Vec::new(),
            err: Vec::new(),
        };
        process.program = program::begin(&words, &mut around).ok_or(Failure::CommandNotFound { command })?;
        let started = ProcessStarted { process: process.handle, pid };
        self.next_pid += 1;
        self.next_handle += 1;
        self.processes.insert(started.process, process);
        Ok(started)
    }

    /// Starts a process that is killed after some time.
    pub(crate) fn start_within(&mut self, spec: ProcessSpec, limit_ms: u64) -> Result<ProcessStarted, Failure> {
        let started = self.start(spec)?;
        let limit_us = self.clock_us.saturating_add(limit_ms.saturating_mul(1000));
        self.process(started.process)?.limit_us = Some(limit_us);
        Ok(started)
    }

    /// Starts a process with all of its input, and a time limit if it has one.
    pub(crate) fn start_with_input(
        &mut self,
        mut spec: ProcessSpec,
        input: &[u8],
        limit_ms: Option<u64>,
    ) -> Result<ProcessStarted, Failure> {
        spec.stdin = Stdin::Pipe;
        let started = match limit_ms {
            Some(limit_ms) => self.start_within(spec, limit_ms),
            None => self.start(spec),
        }?;
        self.write_stdin(started.process, input)?;
        self.close_stdin(started.process)?;
        Ok(started)
    }

    fn environment(&self, account: &Account, own: &[Variable]) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), account.home.to_text()),
        ]);
        for variable in self.variables.iter().chain(own) {
            variables.insert(variable.name().to_text(), variable.value().to_text());
        }
        variables
    }

    pub(crate) fn process(&mut self, handle: u64) -> Result<&mut Process, Failure> {
        let mut logs = self.services.values_mut().map(|service| &mut service.log);
        let found = match self.processes.get_mut(&handle) {
            Some(process) => Some(process),
            None => logs.find(|log| log.handle == handle),
        };
        found.ok_or(Failure::NoProcess { process: handle })
    }

    pub(crate) fn list_processes(&self) -> Vec<ProcessStatus> {
        self.processes.values().filter_map(Process::status).collect()
    }

    pub(crate) fn write_stdin(&mut self, handle: u64, bytes: &[u8]) -> Result<(), Failure> {
        let process = self.process(handle)?;
        if !process.takes_input() {
            return Err(Failure::InputClosed { process: handle });
        }
        if process.spec.terminal.is_none() {
            process.input.bytes.extend_from_slice(bytes);
            return Ok(());
        }
        // A terminal echoes its input, and interprets Ctrl-C and Ctrl-D.
        for byte in bytes {
            match byte {
                3 => {
                    process.show(b"^C\n");
                    self.signal(handle, Signal::INTERRUPT)?;
                    return Ok(());
                }
                4 => process.input.open = false,
                byte => {
                    let byte = if *byte == b'\r' { b'\n' } else { *byte };
                    process.input.bytes.push(byte);
                    process.show(&[byte]);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn close_stdin(&mut self, handle: u64) -> Result<(), Failure> {
        let process = self.process(handle)?;
        process.input.open = false;
        Ok(())
    }

    /// Kills a process; in this guest, none has children. Returns how many were killed.
    pub(crate) fn kill_tree(&mut self, process: u64) -> Result<u32, Failure> {
        if self.process(process)?.exit.is_some() {
            return Ok(0);
        }
        self.signal(process, Signal::KILL).map(|()| 1)
    }

    pub(crate) fn signal(&mut self, handle: u64, signal: Signal) -> Result<(), Failure> {
        let process = self.process(handle)?;
        if process.exit.is_some() {
            return Err(Failure::NoProcess { process: handle });
        }
        // A Linux process ignores these signals by default, or is stopped by them.
        if ![17, 18, 19, 20, 21, 22, 23, 28].contains(&signal.number()) {
            process.exit = Some(ExitStatus::Signal(signal.number()));
            self.forget_old();
        }
        Ok(())
    }

    pub(crate) fn resize(&mut self, handle: u64, size: TerminalSize) -> Result<(), Failure> {
        if self.process(handle)?.resize(size) { Ok(()) } else { Err(Failure::NoTerminal { process: handle }) }
    }

    /// Kills the process with this process id, if it exists.
    pub(crate) fn relieve_memory_pressure(&mut self, victim: Option<u32>) {
        let found = self.processes.values_mut().find(|p| p.exit.is_none() && Some(p.pid) == victim);
        if let Some(process) = found {
            process.exit = Some(ExitStatus::Signal(Signal::KILL.number()));
        }
    }

    pub(crate) fn oom_victim(&self) -> Option<u32> {
        let living = self.processes.values().filter(|process| process.exit.is_none());
        living.max_by_key(|process| process.program.memory()).map(|process| process.pid)
    }

    /// Returns the memory in use and the limit, in bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let living = self.processes.values().filter(|process| process.exit.is_none());
        (8 * PROGRAM_MEMORY + living.map(|process| process.program.memory()).sum::<u64>(), self.memory_bytes)
    }

    pub(crate) fn cpu_us(&self) -> u64 {
        self.cpu_us
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let (used, total) = self.memory();
        let (disk_total_bytes, disk_used_bytes) = self.files.disk();
        let living = self.processes.values().filter(|process| process.exit.is_none()).count();
        Metrics {
            memory_total_bytes: total,
            memory_used_bytes: used,
            cpus: 1,
            cpu_used_us: self.cpu_us,
            processes: u32::try_from(living + 1).unwrap_or(u32::MAX),
            disk_total_bytes,
            disk_used_bytes,
        }
    }

    /// Returns the service of a process that listens on `port`.
    pub(crate) fn listens(&self, port: u16) -> Option<Service> {
        self.processes.values().filter(|process| process.exit.is_none()).find_map(|p| p.program.listens(port))
    }

    pub(crate) fn account(&self, user: &User) -> Result<Account, Failure> {
        let users = self.files.users();
        let found = users.into_iter().find(|(name, uid, ..)| match user {
            User::Name(wanted) => wanted == name,
            User::Id { uid: wanted, .. } => wanted == uid,
        });
        let path = |text: String| text.try_into().ok();
        let home = |text: Option<String>| {
            text.and_then(path).or_else(|| path("/".to_owned())).ok_or(Failure::NoUser { user: user.to_string() })
        };
        match (found, user) {
            (Some((name, uid, own, at, shell)), user) => {
                let gid = match user {
                    User::Id { gid: Some(gid), .. } => *gid,
                    User::Id { gid: None, .. } | User::Name(_) => own,
                };
                Ok(Account { uid, gid, name: Some(name), home: home(Some(at))?, shell: path(shell) })
            }
            (None, User::Id { uid, gid }) => {
                Ok(Account { uid: *uid, gid: gid.unwrap_or(*uid), name: None, home: home(None)?, shell: None })
            }
            (None, User::Name(name)) => Err(Failure::NoUser { user: name.clone() }),
        }
    }

    /// Returns the owner and time for a file that `owner` creates now; without an owner, root.
    pub(crate) fn stamp_of(&self, owner: Option<&User>) -> Result<Stamp, Failure> {
        match owner {
            Some(user) => {
                let account = self.account(user)?;
                Ok(Stamp { uid: account.uid, gid: account.gid, ..self.stamp() })
            }
            None => Ok(self.stamp()),
        }
    }

    /// Takes the identity of a new run, and runs each hook of the hook directory: to its end, or
    /// only as far as it gets without waiting.
    pub(crate) fn resumed(&mut self, identity: Identity) -> Resumed {
        self.generation = identity.generation;
        self.hostname = identity.hostname;
        self.variables = identity.variables;
        self.unix_offset_us = identity.unix_time_us.saturating_sub(self.clock_us);
        let text = format!("{}\n", identity.generation).into_bytes();
        if let Ok(path) = "/run/dormouse/generation".try_into() {
            // A full disk must not keep a sandbox from waking; a real generation file is in memory.
            self.files.write(&path, text, None, self.stamp(), Parents::Create).ok();
        }
        let (hostname, clock) = (Applied::Yes, Applied::NotNeeded);
        Resumed { hostname, clock, entropy: Applied::Yes, hooks: self.run_hooks(identity.generation) }
    }

    fn run_hooks(&mut self, generation: u64) -> Vec<Hook> {
        let entries = HOOKS.try_into().ok().and_then(|path| self.files.list(&path, 1).ok()).unwrap_or_default();
        let mut hooks = Vec::new();
        for entry in entries.into_iter().filter(|entry| entry.stat.mode & 0o111 != 0) {
            let words = ["sh", &entry.path.to_text()].map(dorm_agent_proto::GuestString::try_from);
            let Ok(arguments) = words.into_iter().collect::<Result<Vec<_>, _>>() else { continue };
            let mut spec = ProcessSpec::new(arguments);
            spec.variables.extend(Variable::new("DORMOUSE_GENERATION", generation.to_string()));
            let outcome = match self.start(spec) {
                Ok(started) => {
                    self.settle();
                    match self.processes.remove(&started.process).and_then(|process| process.exit) {
                        Some(ExitStatus::Code(0)) => HookOutcome::Done,
                        Some(status) => HookOutcome::Failed(status.shell_code()),
                        None => HookOutcome::TimedOut,
                    }
                }
                Err(failure) => HookOutcome::NotStarted(failure.to_string()),
            };
            hooks.push(Hook { path: entry.path, outcome });
        }
        hooks
    }

    pub(crate) fn unix_us(&self) -> u64 {
        self.unix_offset_us.saturating_add(self.clock_us)
    }

    fn stamp(&self) -> Stamp {
        Stamp { uid: 0, gid: 0, unix_ms: i64::try_from(self.unix_us() / 1000).unwrap_or(i64::MAX) }
    }
}
