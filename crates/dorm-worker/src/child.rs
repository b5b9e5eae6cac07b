//! The worker's side: which role it has, and that it is confined before it begins.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitCode;

use crate::confine;
use crate::program::Limits;

/// The first argument of a worker.
pub const NAME: &str = "worker";
/// The exit code of a worker that could not do its work.
const FAILED: u8 = 70;

/// Something that workers do.
#[derive(Clone, Copy)]
pub struct Role {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Opens what it reads beside its input, before it is confined. What is in there is not looked at.
    pub open: fn(&[String]) -> io::Result<Vec<File>>,
    /// Does it, confined.
    pub run: fn(Work) -> io::Result<()>,
}

impl Role {
    /// One that reads its input alone.
    pub const fn new(name: &'static str, run: fn(Work) -> io::Result<()>) -> Self {
        Self { name, open: |_| Ok(Vec::new()), run }
    }
}

/// What a worker has.
#[derive(Debug)]
pub struct Work {
    /// Its arguments, which its caller chose.
    pub arguments: Vec<String>,
    /// What its role has opened.
    pub files: Vec<File>,
    /// Its input.
    pub input: File,
    /// Where its caller reads.
    pub output: File,
}

/// Does what `arguments` ask for: a role, limits, the user to be, and what the role takes.
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
