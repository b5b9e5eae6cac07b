//! The worker's side: selects its role, and confines itself before it starts.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitCode;

use crate::confine;
use crate::limits::Limits;

/// The first argument of a worker.
pub const NAME: &str = "worker";
/// The exit code of a worker that failed.
const FAILED: u8 = 70;

/// A task that a worker can perform.
#[derive(Clone, Copy)]
pub struct Role {
    /// Its name on the command line.
    pub name: &'static str,
    /// Opens the files it reads in addition to its input, before it is confined. Must not read
    /// their content.
    pub open: fn(&[String]) -> io::Result<Vec<File>>,
    /// Performs the task, confined.
    pub run: fn(Work) -> io::Result<()>,
}

impl Role {
    /// Creates a role that reads only its input.
    pub const fn new(name: &'static str, run: fn(Work) -> io::Result<()>) -> Self {
        Self { name, open: |_| Ok(Vec::new()), run }
    }
}

/// The resources of a worker.
#[derive(Debug)]
pub struct Work {
    /// Its arguments, chosen by its caller.
    pub arguments: Vec<String>,
    /// The files that its role has opened.
    pub files: Vec<File>,
    /// Its input.
    pub input: File,
    /// Its output, which the caller reads.
    pub output: File,
}

/// Runs the worker that `arguments` describe: a role, limits, the user ID, and the arguments of the
/// role.
pub fn run(arguments: impl Iterator<Item = OsString>, roles: &[&[Role]]) -> ExitCode {
    match work(arguments, roles) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(FAILED)
        }
    }
}

fn work(arguments: impl Iterator<Item = OsString>, roles: &[&[Role]]) -> io::Result<()> {
    confine::close_others().map_err(with("close other descriptors"))?;
    let arguments: Result<Vec<String>, _> = arguments.map(OsString::into_string).collect();
    let arguments = arguments.map_err(|_| io::Error::other("an argument is not UTF-8"))?;
    let [name, limits, user, rest @ ..] = &arguments[..] else {
        return Err(io::Error::other("only the daemon starts workers"));
    };
    let role = roles.iter().flat_map(|roles| roles.iter()).find(|role| role.name == name);
    let role = role.ok_or_else(|| io::Error::other(format!("there is no role '{name}'")))?;
    let limits: Limits = serde_json::from_str(limits)?;
    let user = user.parse().map_err(io::Error::other)?;
    let files = (role.open)(rest)?;
    let owned = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map(File::from);
    let (input, output) = (owned(io::stdin().as_fd())?, owned(io::stdout().as_fd())?);
    confine::isolate(user)?;
    confine::limit(&limits)?;
    confine::filter()?;
    (role.run)(Work { arguments: rest.to_vec(), files, input, output })
}

fn with(operation: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {operation}: {error}"))
}
