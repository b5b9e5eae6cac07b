//! Creates one process: its user, its directory and its environment.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dorm_agent_proto::{
    Account, Failure, GuestPath, GuestString, LABEL_MAX, OutputKind, ProcessSpec, Stdin, User, Variable,
};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Pid, Uid};

use super::pump::Source;
use super::terminal::{self, Terminal};
use super::tree;
use crate::fault;
use crate::users::Users;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

type Variables = BTreeMap<Vec<u8>, Vec<u8>>;

/// Everything that must be known before a process can be created. Creating it can only fail in the
/// kernel.
pub(super) struct Plan<'a> {
    spec: &'a ProcessSpec,
    command: GuestString,
    program: PathBuf,
    directory: GuestPath,
    variables: Variables,
    account: Account,
    groups: Vec<u32>,
}

/// A created process and this side of its descriptors.
pub(super) struct Spawned {
    pub(super) pid: Pid,
    pub(super) sources: Vec<Source>,
    pub(super) input: Option<OwnedFd>,
    pub(super) terminal: Option<Terminal>,
}

/// Looks everything up; changes nothing.
pub(super) fn plan<'a>(spec: &'a ProcessSpec, sandbox: &[Variable]) -> Result<Plan<'a>, Failure> {
    let Some(command) = spec.arguments.first().filter(|command| !command.as_bytes().is_empty()).cloned() else {
        return Err(Failure::Invalid { reason: "no command was given".to_owned() });
    };
    if spec.label.as_ref().is_some_and(|label| label.len() > LABEL_MAX) {
        return Err(Failure::Invalid { reason: format!("its label is longer than {LABEL_MAX} bytes") });
    }
    let users = Users::read();
    let account = users.account(spec.user.as_ref().unwrap_or(&User::Id { uid: 0, gid: None }))?;
    let groups = users.groups(&account);
    let directory = match &spec.directory {
        Some(directory) => directory.clone(),
        None if account.home.as_path().is_dir() => account.home.clone(),
        None => GuestPath::try_from("/").map_err(|error| Failure::Invalid { reason: error.to_string() })?,
    };
    let at = fs::metadata(directory.as_path()).map_err(|error| fault::on_path("start in", &directory, &error))?;
    if !at.is_dir() {
        return Err(Failure::NotADirectory { path: directory });
    }
    let variables = variables(spec, sandbox, &account);
    let path = variables.get(b"PATH".as_slice()).map_or(DEFAULT_PATH.as_bytes(), Vec::as_slice);
    let program = find(&command, directory.as_path(), path)?;
    Ok(Plan { spec, command, program, directory, variables, account, groups })
}

/// Returns the sandbox's variables, overridden by those of the user, overridden by the process's
/// own.
fn variables(spec: &ProcessSpec, sandbox: &[Variable], account: &Account) -> Variables {
    let mut variables = Variables::new();
    variables.insert(b"PATH".to_vec(), DEFAULT_PATH.as_bytes().to_vec());
    variables.insert(b"HOME".to_vec(), account.home.as_bytes().to_vec());
    if let Some(shell) = &account.shell {
        variables.insert(b"SHELL".to_vec(), shell.as_bytes().to_vec());
    }
    let bytes = |one: &Variable| (one.name().as_bytes().to_vec(), one.value().as_bytes().to_vec());
    variables.extend(sandbox.iter().map(bytes));
    if spec.user.is_some() {
        variables.insert(b"HOME".to_vec(), account.home.as_bytes().to_vec());
    }
    if let Some(name) = &account.name {
        for variable in [b"USER".to_vec(), b"LOGNAME".to_vec()] {
            variables.insert(variable, name.clone().into_bytes());
        }
    }
    if spec.terminal.is_some() {
        variables.insert(b"TERM".to_vec(), b"xterm-256color".to_vec());
    }
    variables.extend(spec.variables.iter().map(bytes));
    variables
}

/// Returns the path of a command. A name without `/` is searched in `PATH`, as a shell does.
fn find(command: &GuestString, directory: &Path, path: &[u8]) -> Result<PathBuf, Failure> {
    let name = command.as_os_str();
    let candidates: Vec<PathBuf> = if command.as_bytes().contains(&b'/') {
        vec![directory.join(name)]
    } else {
        path.split(|byte| *byte == b':').map(|part| directory.join(OsStr::from_bytes(part)).join(name)).collect()
    };
    let mut not_executable = None;
    for candidate in candidates {
        match fs::metadata(&candidate) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(found) if found.is_dir() => not_executable = not_executable.or(Some("it is a directory")),
            Ok(_) => not_executable = Some("it is not executable: chmod +x it"),
            Err(_) => {}
        }
    }
    match not_executable {
        // A directory in PATH with the command's name does not count.
        Some(reason) if command.as_bytes().contains(&b'/') || reason != "it is a directory" => {
            Err(Failure::CannotExecute { command: command.clone(), reason: reason.to_owned() })
        }
        _ => Err(Failure::CommandNotFound { command: command.clone() }),
    }
}

impl Plan<'_> {
    pub(super) fn directory(&self) -> &GuestPath {
        &self.directory
    }

    /// Creates the process, with this value of [`tree::VARIABLE`].
    pub(super) fn spawn(&self, mark: &str) -> Result<Spawned, Failure> {
        let mut command = Command::new(&self.program);
        command
            .arg0(self.command.as_os_str())
            .args(self.spec.arguments.iter().skip(1).map(GuestString::as_os_str))
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value))))
            .env(tree::VARIABLE, mark)
            .current_dir(self.directory.as_path());
        let mut spawned = match self.spec.terminal {
            Some(size) => {
                let (terminal, slave) = terminal::open(size).map_err(|error| self.failed(&error))?;
                self.with_terminal(&mut command, terminal, slave)
            }
            None => self.with_pipes(&mut command),
        }
        .map_err(|error| self.failed(&error))?;
        let child = command.spawn().map_err(|error| self.failed(&error))?;
        // The reaper waits for it, not the standard library.
        spawned.pid = Pid::from_child(&child);
        Ok(spawned)
    }

    fn with_pipes(&self, command: &mut Command) -> io::Result<Spawned> {
        let (stdout, stdout_of_child) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, stderr_of_child) = pipe_with(PipeFlags::CLOEXEC)?;
        command.stdout(stdout_of_child).stderr(stderr_of_child);
        let input = match self.spec.stdin {
            Stdin::Empty => {
                command.stdin(Stdio::null());
                None
            }
            Stdin::Pipe => {
                let (stdin_of_child, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
                command.stdin(stdin_of_child);
                rustix::io::ioctl_fionbio(&stdin, true)?;
                Some(stdin)
            }
        };
        for descriptor in [&stdout, &stderr] {
            rustix::io::ioctl_fionbio(descriptor, true)?;
        }
        match self.identity() {
            None => {
                command.process_group(0);
            }
            Some(identity) => become_leader(command, Leader::OfGroup, Some(identity)),
        }
        let sources = vec![
            Source { kind: OutputKind::Stdout, descriptor: stdout },
            Source { kind: OutputKind::Stderr, descriptor: stderr },
        ];
        Ok(Spawned { pid: Pid::INIT, sources, input, terminal: None })
    }

    fn with_terminal(&self, command: &mut Command, terminal: Terminal, slave: File) -> io::Result<Spawned> {
        rustix::fs::fchown(&slave, Some(Uid::from_raw(self.account.uid)), None)?;
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        become_leader(command, Leader::OfSession, self.identity());
        let (output, input) = (terminal.duplicate()?, terminal.duplicate()?);
        rustix::io::ioctl_fionbio(&output, true)?;
        let sources = vec![Source { kind: OutputKind::Stdout, descriptor: output }];
        Ok(Spawned { pid: Pid::INIT, sources, input: Some(input), terminal: Some(terminal) })
    }

    /// Returns the identity of the process, if it differs from the agent's.
    fn identity(&self) -> Option<Identity> {
        let other = self.account.uid != rustix::process::geteuid().as_raw()
            || self.account.gid != rustix::process::getegid().as_raw()
            || self.groups.iter().any(|group| *group != self.account.gid);
        other.then(|| Identity {
            uid: Uid::from_raw(self.account.uid),
            gid: Gid::from_raw(self.account.gid),
            groups: self.groups.iter().copied().map(Gid::from_raw).collect(),
        })
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let command = self.command.clone();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // The program existed a moment ago, so its interpreter is missing.
            Some(Errno::NOENT) => {
                Failure::CannotExecute { command, reason: "its interpreter or loader does not exist".to_owned() }
            }
            _ => Failure::CannotExecute { command, reason: error.to_string() },
        }
    }
}

struct Identity {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

#[derive(Clone, Copy)]
enum Leader {
    OfGroup,
    OfSession,
}

/// Does what the standard library cannot do between fork and exec.
#[allow(unsafe_code)]
fn become_leader(command: &mut Command, leader: Leader, identity: Option<Identity>) {
    let prepare = move || -> io::Result<()> {
        match leader {
            Leader::OfGroup => rustix::process::setpgid(None, None)?,
            Leader::OfSession => {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
        }
        if let Some(identity) = &identity {
            rustix::thread::set_thread_groups(&identity.groups)?;
            rustix::thread::set_thread_res_gid(identity.gid, identity.gid, identity.gid)?;
            rustix::thread::set_thread_res_uid(identity.uid, identity.uid, identity.uid)?;
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls on values created before the fork; it takes no
    // lock and allocates nothing. The forked child has one thread, so changing a thread's identity
    // changes the process's.
    unsafe { command.pre_exec(prepare) };
}
