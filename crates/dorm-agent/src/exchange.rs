//! Files on volumes that are deleted and still open: a memory image cannot hold them, so each is exchanged for a copy on
//! the sandbox's own disk before one is taken.
//!
//! Descriptors of other processes can be exchanged by these processes alone, so they are held with ptrace(2) and made to
//! do it: each hands its descriptor over through a socket, gets another one of the copy back, and puts it in its place.
//! What shared a file, or an offset, before shares it afterwards. A program notices nothing.
//!
//! Whoever traces is told of every stop of what it traces, and the agent buries children: so a process of its own does
//! this, which is the same program with another argument. It says what is wrong on its output, and `done` at the end: one
//! that dies in the middle has not said that.
//!
//! ```text
//! find ──► hold all threads of who has one ──► take descriptors ──► copy ──► give descriptors ──► let go
//! ```

mod copies;
mod find;
mod held;
mod passage;
mod registers;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dorm_agent_proto::Failure;

use self::copies::{Copies, Taken};
use self::find::{Found, Open};
use self::held::{Held, HeldError};
use self::passage::{Crossing, Passage};
use crate::agent::Agent;
use crate::fault;
use crate::lock::lock;

/// The argument with which the program does this.
pub(crate) const ARGUMENT: &str = "exchange";

const OPERATION: &str = "copy the deleted file";
const DONE: &[u8] = b"done";

/// Which file it is about, and what is the matter with it.
#[derive(Debug)]
struct Trouble {
    path: PathBuf,
    reason: String,
}

impl Trouble {
    fn new(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }
}

/// Exchanges every open deleted file on a volume for a copy.
pub(crate) fn all(agent: &Agent) -> Result<(), Failure> {
    // Nothing is attached or detached meanwhile.
    let mounts = lock(&agent.mounts.0);
    if mounts.is_empty() {
        return Ok(());
    }
    let trouble = |Trouble { path, reason }: Trouble| fault::other(OPERATION, path.as_os_str().as_bytes(), reason);
    let volumes: Vec<PathBuf> = mounts.keys().map(|path| path.as_path().to_owned()).collect();
    if find::everywhere(&find::devices(&volumes)).map_err(trouble)?.is_empty() {
        return Ok(());
    }
    let wrong = |error: io::Error| fault::other("look for deleted files on", b"volumes", error);
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).args(&volumes);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
    let mut output = agent.processes.start_helper(command).map_err(wrong)?;
    let mut said = Vec::new();
    output.read_to_end(&mut said).map_err(wrong)?;
    if said == DONE {
        return Ok(());
    }
    let mut parts = said.splitn(2, |byte| *byte == 0);
    match (parts.next(), parts.next()) {
        (Some(path), Some(reason)) => Err(fault::other(OPERATION, path, String::from_utf8_lossy(reason))),
        _ => Err(wrong(io::Error::other("the process that replaces them ended early"))),
    }
}

/// The process that does it: `volumes` are where they appear.
pub(crate) fn run(volumes: impl Iterator<Item = PathBuf>) -> io::Result<()> {
    let answer = match exchange(&volumes.collect::<Vec<_>>()) {
        Ok(()) => DONE.to_vec(),
        Err(Trouble { path, reason }) => {
            [path.into_os_string().into_vec().as_slice(), &[0], reason.as_bytes()].concat()
        }
    };
    io::stdout().write_all(&answer)
}

fn exchange(volumes: &[PathBuf]) -> Result<(), Trouble> {
    let devices = find::devices(volumes);
    let found = find::everywhere(&devices)?;
    let Some(Open { path: first, .. }) = found.first() else { return Ok(()) };
    let mut held: Vec<Held> = Vec::new();
    for Open { process, path, .. } in &found {
        if held.iter().all(|held| held.process() != *process) {
            // One that has ended meanwhile has nothing open.
            held.extend(Held::hold(*process).map_err(|error| Trouble::new(path, error))?);
        }
    }
    // What is open now stays so: whoever has any of it stands still.
    let mut opens: Vec<(usize, Open)> = Vec::new();
    for (at, process) in held.iter().enumerate() {
        match find::of(process.process(), &devices) {
            Found::Opens(found) => opens.extend(found.into_iter().map(|open| (at, open))),
            Found::Mapped(path) => {
                let who = process.name();
                return Err(Trouble::new(
                    &path,
                    format!("{who} has mapped it into its memory: have it unmap the file"),
                ));
            }
        }
    }
    let passage = Passage::new().map_err(|error| Trouble::new(first, error))?;
    let mut crossings = BTreeMap::new();
    let exchanged = cross(&passage, &mut held, &opens, &mut crossings);
    for (at, crossing) in crossings {
        crossing.close(&mut held[at]);
    }
    exchanged
}

/// Takes all descriptors, and gives copies for them. `opens` come with the number of who has them.
fn cross(
    passage: &Passage,
    held: &mut [Held],
    opens: &[(usize, Open)],
    crossings: &mut BTreeMap<usize, Crossing>,
) -> Result<(), Trouble> {
    let names: Vec<String> = held.iter().map(Held::name).collect();
    let wrong = |at: usize, open: &Open, error: HeldError| Trouble::new(&open.path, format!("{}: {error}", names[at]));
    let mut taken = Vec::new();
    for (at, open) in opens {
        let crossing = match crossings.entry(*at) {
            Entry::Occupied(crossing) => crossing.into_mut(),
            Entry::Vacant(place) => {
                place.insert(passage.open(&mut held[*at]).map_err(|error| wrong(*at, open, error))?)
            }
        };
        let descriptor = crossing.take(&mut held[*at], open.descriptor).map_err(|error| wrong(*at, open, error))?;
        taken.push(Taken::new(descriptor).map_err(|error| Trouble::new(&open.path, error))?);
    }
    let copies = Copies::make(&taken, Path::new("/")).map_err(|(at, error)| Trouble::new(&opens[at].1.path, error))?;
    for (number, (at, open)) in opens.iter().enumerate() {
        let Some(crossing) = crossings.get(at) else { continue };
        let given = crossing.give(&mut held[*at], open.descriptor, copies.of(number));
        given.map_err(|error| wrong(*at, open, error))?;
    }
    Ok(())
}
