//! The processes started by the host, from their start until they are forgotten.
//!
//! Starting, reaping and signalling exclude each other, so that a signal never reaches another
//! process with a reused ID. An ended process is kept, with the rest of its output, until many
//! later ones have ended.

mod ended;
mod fast_spawn;
mod follow;
mod input;
mod limits;
mod outputs;
mod pump;
mod reaper;
mod ring;
mod spawn;
mod terminal;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::process::{ChildStdout, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dorm_agent_proto::{
    Answer, End, Event, ExitStatus, Failure, FirstReader, GuestPath, GuestString, OutputEnd, OutputKind, ProcessKey,
    ProcessSpec, ProcessStarted, ProcessStatus, STATUS_BYTES, Signal, Stdin, Target, TerminalSize, Variable,
};
use rustix::process::Pid;

use self::ended::Ended;
use self::input::{Input, Reader, Writers};
use self::limits::Limits;
pub(crate) use self::outputs::{Log, Pieces};
use self::outputs::{Outputs, Room};
use self::pump::Pump;
use crate::call::Call;
use crate::channel::{Channel, Received};
use crate::courier::Courier;
use crate::fault;
use crate::link::Gone;
use crate::lock::{lock, wait_for};
use crate::places::Places;
use crate::random;

const OUTPUT_KEPT_MAX: usize = 64 * 1024 * 1024;
const READERS_MAX: u32 = 4096;
const WAITS_MAX: u32 = 4096;

/// One process.
pub(crate) struct Process {
    id: u64,
    pid: Pid,
    spec: ProcessSpec,
    directory: GuestPath,
    started_unix_ms: u64,
    terminal: Mutex<Option<terminal::Terminal>>,
    input: Mutex<Input>,
    writers: Writers,
    outputs: Arc<Mutex<Outputs>>,
    /// The output of the service that it is a process of.
    log: Option<Log>,
    /// Whether it was killed at its time limit.
    is_overdue: AtomicBool,
    /// Whether readers wait for the end of its output when it has ended.
    waits_for_pipes: AtomicBool,
    /// Whether its time limit has ended that wait.
    was_cut: AtomicBool,
    life: Mutex<Life>,
    ended: Condvar,
}

struct Life {
    stage: Stage,
    waiting: Vec<Arc<Channel>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alive,
    /// Reaped: its process ID may be reused. The rest of its pipes is being read.
    Buried,
    /// All its output can be read, except for what a reader holds up.
    Ended(ExitStatus),
}

/// All processes.
pub(crate) struct Processes {
    births_and_deaths: Mutex<()>,
    table: Mutex<Table>,
    pump: Arc<Pump>,
    courier: Arc<Courier>,
    limits: Limits,
    readers: Arc<Places>,
    waits: Arc<Places>,
    reaper: reaper::Bell,
    /// Distinguishes the processes of this agent from those of another one on the same kernel.
    own: String,
}

#[derive(Default)]
struct Table {
    last: u64,
    all: BTreeMap<u64, Arc<Process>>,
    alive: HashMap<Pid, Arc<Process>>,
    ended: Ended,
}

impl Processes {
    pub(crate) fn start_threads() -> io::Result<Arc<Self>> {
        let processes = Arc::new(Self {
            births_and_deaths: Mutex::new(()),
            table: Mutex::default(),
            pump: Pump::start_thread()?,
            courier: Courier::start_thread()?,
            limits: Limits::default(),
            readers: Places::new("output streams", READERS_MAX),
            waits: Places::new("waits for processes", WAITS_MAX),
            reaper: reaper::Bell::default(),
            own: random::text()?,
        });
        reaper::start_thread(&processes)?;
        Ok(processes)
    }

    /// Starts a process with these variables and its own.
    pub(crate) fn start(&self, spec: ProcessSpec, variables: &[Variable]) -> Result<ProcessStarted, Failure> {
        Ok(self.begin(spec, variables, None, None)?.started())
    }

    /// Starts a process with these variables and its own, and with all of its input.
    pub(crate) fn start_with_input(
        &self,
        mut spec: ProcessSpec,
        variables: &[Variable],
        input: Vec<u8>,
    ) -> Result<ProcessStarted, Failure> {
        spec.stdin = Stdin::Pipe;
        let input = Input::whole(input, reader(&spec));
        Ok(self.begin(spec, variables, Some(input), None)?.started())
    }

    /// Starts a process whose output is also added to a log.
    pub(crate) fn start_logged(
        &self,
        spec: ProcessSpec,
        variables: &[Variable],
        log: Log,
    ) -> Result<Arc<Process>, Failure> {
        self.begin(spec, variables, None, Some(log))
    }

    /// Starts a process. By default, its input is open if it has one.
    fn begin(
        &self,
        mut spec: ProcessSpec,
        variables: &[Variable],
        input: Option<Input>,
        log: Option<Log>,
    ) -> Result<Arc<Process>, Failure> {
        let plan = spawn::plan(&spec, variables)?;
        let directory = plan.directory().clone();
        let _alone = lock(&self.births_and_deaths);
        let id = lock(&self.table).last + 1;
        let spawned = plan.spawn(&tree::mark(&self.own, id))?;
        // Only this much of it is ever shown.
        spec.arguments = first(&spec.arguments, argument_bytes);
        spec.variables = first(&without_values(&spec.variables), variable_bytes);
        let expected = (spec.first_reader == FirstReader::Expected).then(Instant::now);
        let input = match &spawned.input {
            Some(_) => input.unwrap_or_else(Input::open),
            None => Input::closed(),
        };
        let mut table = lock(&self.table);
        table.last = id;
        let process = Arc::new(Process {
            id,
            pid: spawned.pid,
            directory,
            started_unix_ms: unix_ms(),
            terminal: Mutex::new(spawned.terminal),
            input: Mutex::new(input),
            writers: Writers::default(),
            outputs: Arc::new(Mutex::new(Outputs::new(kept(&spec), expected))),
            log,
            is_overdue: AtomicBool::new(false),
            waits_for_pipes: AtomicBool::new(spec.output_end == OutputEnd::WithPipes && spec.terminal.is_none()),
            was_cut: AtomicBool::new(false),
            life: Mutex::new(Life { stage: Stage::Alive, waiting: Vec::new() }),
            ended: Condvar::new(),
            spec,
        });
        table.all.insert(process.id, Arc::clone(&process));
        table.alive.insert(process.pid, Arc::clone(&process));
        drop(table);
        self.pump.add(Arc::clone(&process), spawned.sources, spawned.input);
        self.reaper.ring();
        Ok(process)
    }

    /// Has a process and its group killed after some time.
    pub(crate) fn limit(self: &Arc<Self>, id: u64, limit: Duration) -> Result<(), Failure> {
        self.limits
            .add(self, id, limit)
            .map_err(|error| fault::other("limit the time of process", id.to_string().as_bytes(), error))
    }

    /// Does not count time towards the limits, until [`Processes::continue_limits`].
    pub(crate) fn stop_limits(&self) {
        self.limits.stop();
    }

    pub(crate) fn continue_limits(&self) {
        self.limits.resume();
    }

    /// Kills a process whose time limit has passed, and its group.
    fn kill_overdue(&self, id: u64) {
        let Ok(process) = self.find(id) else { return };
        let _alone = lock(&self.births_and_deaths);
        if lock(&process.life).stage == Stage::Alive {
            process.is_overdue.store(true, Ordering::Release);
            process.waits_for_pipes.store(false, Ordering::Release);
            // It exists, since it is not reaped.
            let _ = rustix::process::kill_process_group(process.pid, rustix::process::Signal::KILL);
        } else if process.is_held_open() {
            process.was_cut.store(true, Ordering::Release);
            self.cut_output(&process);
        }
    }

    /// Ends the output of a process that has ended, although others have it open.
    fn cut_output(&self, process: &Process) {
        process.waits_for_pipes.store(false, Ordering::Release);
        self.pump.wake();
    }

    /// Starts a process of the agent's own, which is not listed; returns its output. It is reaped
    /// with the others.
    pub(crate) fn start_helper(&self, mut command: Command) -> io::Result<ChildStdout> {
        let _alone = lock(&self.births_and_deaths);
        let child = command.spawn()?;
        self.reaper.ring();
        child.stdout.ok_or_else(|| io::Error::other("the process has no output pipe"))
    }

    /// Sends all processes, oldest first.
    pub(crate) fn list(&self, call: &Call) -> Result<(), Gone> {
        self.list_where(call, |_| true)
    }

    /// Sends the processes that have a key, oldest first.
    pub(crate) fn list_of(&self, call: &Call, key: &ProcessKey) -> Result<(), Gone> {
        self.list_where(call, |process| match key {
            ProcessKey::Pid(pid) => raw(process.pid) == *pid,
            ProcessKey::Label(label) => process.spec.label.as_ref() == Some(label),
        })
    }

    fn list_where(&self, call: &Call, is_wanted: impl Fn(&Process) -> bool) -> Result<(), Gone> {
        let all: Vec<_> = lock(&self.table).all.values().filter(|process| is_wanted(process)).cloned().collect();
        call.answer(&Ok(Answer::Follows))?;
        for process in all {
            call.event(&Event::Process(process.status()))?;
        }
        call.end(&End::Complete)
    }

    /// Writes data from the host to a process's input.
    pub(crate) fn write_stdin(&self, call: &Call, id: u64) -> Result<(), Gone> {
        let process = match self.find(id) {
            Ok(process) => process,
            Err(failure) => return call.answer(&Err(failure)),
        };
        let _turn = process.writers.turn(call)?;
        loop {
            match call.receive()? {
                Received::Data(bytes) => {
                    let Some(ticket) = lock(&process.input).push(bytes, Arc::clone(call)) else {
                        return call.answer(&Err(Failure::InputClosed { process: id }));
                    };
                    self.pump.wake();
                    if let Err(gone) = input::wait_written(call, &ticket) {
                        lock(&process.input).withdraw(&ticket);
                        return Err(gone);
                    }
                    if ticket.failed() {
                        return call.answer(&Err(Failure::InputClosed { process: id }));
                    }
                }
                Received::End(End::Complete) => return call.answer(&Ok(Answer::Done)),
                Received::End(_) => {
                    return call.answer(&Err(Failure::Invalid { reason: "the input stream was cancelled".to_owned() }));
                }
            }
        }
    }

    pub(crate) fn close_stdin(&self, id: u64) -> Result<(), Failure> {
        let process = self.find(id)?;
        lock(&process.input).end(reader(&process.spec));
        self.pump.wake();
        Ok(())
    }

    pub(crate) fn signal(&self, id: u64, signal: Signal, target: Target) -> Result<(), Failure> {
        let process = self.find(id)?;
        let Some(named) = rustix::process::Signal::from_named_raw(signal.number()) else {
            return Err(Failure::Invalid { reason: format!("unknown signal {}", signal.number()) });
        };
        let ends_output = signal == Signal::TERMINATE || signal == Signal::KILL;
        let _alone = lock(&self.births_and_deaths);
        if lock(&process.life).stage != Stage::Alive {
            if ends_output && process.is_held_open() {
                self.cut_output(&process);
                return Ok(());
            }
            return Err(Failure::NoProcess { process: id });
        }
        if ends_output {
            process.waits_for_pipes.store(false, Ordering::Release);
        }
        let sent = match target {
            Target::Process => rustix::process::kill_process(process.pid, named),
            Target::Group => rustix::process::kill_process_group(process.pid, named),
        };
        sent.map_err(|error| fault::other("signal process", id.to_string().as_bytes(), error))
    }

    /// Kills a process and all that descend from it. Returns how many there were.
    pub(crate) fn kill_tree(&self, id: u64) -> Result<u32, Failure> {
        let process = self.find(id)?;
        // No child of the agent is reaped meanwhile, so their process IDs stay theirs.
        let _alone = lock(&self.births_and_deaths);
        let is_alive = lock(&process.life).stage == Stage::Alive;
        tree::kill(&tree::mark(&self.own, id), is_alive.then_some(process.pid))
            .map_err(|reason| fault::other("kill all processes of", id.to_string().as_bytes(), reason))
    }

    pub(crate) fn resize(&self, id: u64, size: TerminalSize) -> Result<(), Failure> {
        let process = self.find(id)?;
        let mut terminal = lock(&process.terminal);
        match terminal.as_mut() {
            None => return Err(Failure::NoTerminal { process: id }),
            Some(terminal) => {
                let wrong = |error| fault::other("resize the terminal of process", id.to_string().as_bytes(), error);
                terminal.resize(size).map_err(wrong)?;
            }
        }
        drop(terminal);
        let _alone = lock(&self.births_and_deaths);
        if lock(&process.life).stage == Stage::Alive {
            tree::tell_of_size(process.pid);
        }
        Ok(())
    }

    /// Waits until the process has ended, or the deadline.
    pub(crate) fn wait_until(&self, id: u64, deadline: Instant) -> Option<ExitStatus> {
        self.find(id).ok()?.wait_until(deadline)
    }

    /// Kills every process and its group.
    pub(crate) fn kill_all(&self) {
        let _alone = lock(&self.births_and_deaths);
        for pid in lock(&self.table).alive.keys() {
            let _ = rustix::process::kill_process_group(*pid, rustix::process::Signal::KILL);
        }
    }

    fn find(&self, id: u64) -> Result<Arc<Process>, Failure> {
        lock(&self.table).all.get(&id).cloned().ok_or(Failure::NoProcess { process: id })
    }
}

impl Process {
    pub(crate) fn started(&self) -> ProcessStarted {
        ProcessStarted { process: self.id, pid: raw(self.pid) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn started_unix_ms(&self) -> u64 {
        self.started_unix_ms
    }

    pub(crate) fn arguments(&self) -> &[GuestString] {
        &self.spec.arguments
    }

    /// Waits until it has ended, or the deadline.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<ExitStatus> {
        let mut life = lock(&self.life);
        loop {
            if let Stage::Ended(status) = life.stage {
                return Some(status);
            }
            let rest = deadline.checked_duration_since(Instant::now())?;
            life = wait_for(&self.ended, life, rest);
        }
    }

    /// Returns how much may be read from it without losing what a reader of it or of the log needs.
    fn room(&self, kind: OutputKind, now: Instant) -> Room {
        let own = lock(&self.outputs).room(kind, now);
        match &self.log {
            None => own,
            Some(log) => own.and(log.room(kind, now)),
        }
    }

    /// Adds bytes that were read from it.
    fn append(&self, kind: OutputKind, bytes: &[u8], now: Instant, unix_ms: u64) {
        lock(&self.outputs).append(kind, bytes, now, unix_ms);
        if let Some(log) = &self.log {
            log.append(kind, bytes, now, unix_ms);
        }
    }

    /// Notifies all waiting calls that the process has ended.
    fn announce(&self, status: ExitStatus) {
        let mut life = lock(&self.life);
        if matches!(life.stage, Stage::Ended(_)) {
            return;
        }
        life.stage = Stage::Ended(status);
        let waiting = std::mem::take(&mut life.waiting);
        drop(life);
        self.ended.notify_all();
        for channel in waiting {
            channel.poke();
        }
    }

    /// Returns how many bytes its arguments and variables have.
    fn described_bytes(&self) -> usize {
        let arguments = self.spec.arguments.iter().map(argument_bytes);
        arguments.chain(self.spec.variables.iter().map(variable_bytes)).sum()
    }

    /// Returns whether readers wait for others to close its output. It may have ended.
    fn is_held_open(&self) -> bool {
        self.waits_for_pipes.load(Ordering::Acquire) && !lock(&self.outputs).is_finished()
    }

    /// Returns whether a process that has ended like this was killed at its time limit, or its
    /// output was cut then.
    fn has_timed_out(&self, status: ExitStatus) -> bool {
        let was_killed = status == ExitStatus::Signal(Signal::KILL.number()) && self.is_overdue.load(Ordering::Acquire);
        was_killed || self.was_cut.load(Ordering::Acquire)
    }

    fn status(&self) -> ProcessStatus {
        let exit = match lock(&self.life).stage {
            Stage::Alive | Stage::Buried => None,
            Stage::Ended(status) => Some(status),
        };
        ProcessStatus {
            process: self.id,
            pid: raw(self.pid),
            arguments: self.spec.arguments.clone(),
            directory: self.directory.clone(),
            variables: self.spec.variables.clone(),
            user: self.spec.user.clone(),
            label: self.spec.label.clone(),
            terminal: lock(&self.terminal).as_ref().map(terminal::Terminal::size),
            started_unix_ms: self.started_unix_ms,
            written: lock(&self.outputs).written(),
            exit,
            timed_out: exit.is_some_and(|status| self.has_timed_out(status)),
        }
    }
}

fn reader(spec: &ProcessSpec) -> Reader {
    if spec.terminal.is_some() { Reader::Terminal } else { Reader::Pipe }
}

/// Returns how many bytes of each output of a process are kept.
pub(crate) fn kept(spec: &ProcessSpec) -> usize {
    (spec.output_kept as usize).min(OUTPUT_KEPT_MAX)
}

/// Returns as many items as fit into [`STATUS_BYTES`].
fn first<T: Clone>(all: &[T], length: impl Fn(&T) -> usize) -> Vec<T> {
    let mut left = STATUS_BYTES;
    let fits = |one: &&T| match left.checked_sub(length(one) + 1) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    all.iter().take_while(fits).cloned().collect()
}

fn argument_bytes(argument: &GuestString) -> usize {
    argument.as_bytes().len()
}

/// Returns variables with empty values: a value may be a secret, and the memory of the agent is in
/// snapshots long after the process has ended.
fn without_values(variables: &[Variable]) -> Vec<Variable> {
    variables.iter().filter_map(|variable| Variable::new(variable.name().as_bytes(), "").ok()).collect()
}

fn variable_bytes(variable: &Variable) -> usize {
    variable.name().as_bytes().len() + variable.value().as_bytes().len()
}

fn raw(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

pub(crate) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
