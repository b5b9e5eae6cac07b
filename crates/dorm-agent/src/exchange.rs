//! Replaces deleted files on volumes that are still open. A memory image cannot contain them, so
//! each is replaced by a copy on the sandbox's own disk before an image is taken.
//!
//! A process's descriptors can only be replaced by the process itself, so processes are stopped
//! with ptrace(2) and made to do it: each sends its descriptor through a socket, receives one of
//! the copy, and puts it in place. Descriptors that shared a file or an offset still share it
//! afterwards. Programs notice nothing.
//!
//! A tracer is notified of every stop of a tracee, and the agent reaps children: therefore a
//! separate process does this, which is the same program with another argument. It reports problems
//! on its output, and `done` at the end; if it dies in the middle, `done` is missing.
//!
//! ```text
//! find ◄─► hold all threads of processes with one ──► take descriptors ──► copy ──► give descriptors ──► release
//! ```

mod copies;
mod find;
mod held;
mod passage;
mod registers;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
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

/// The argument that selects this function of the program.
pub(crate) const ARGUMENT: &str = "exchange";

const OPERATION: &str = "copy the deleted file";
const DONE: &[u8] = b"done";
/// How often processes are looked for. Two rounds are usual, and one more for each generation of
/// processes that was started meanwhile.
const ROUNDS: usize = 100;

/// A file, and why it cannot be replaced.
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

/// Replaces every open deleted file on a volume by a copy.
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

/// Runs in the separate process: `volumes` are the paths of the volumes.
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
    let mut held = hold_all(&devices)?;
    // From here on the set of open files is fixed, since the processes are stopped.
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
    let Some((_, first)) = opens.first() else { return Ok(()) };
    let passage = Passage::new().map_err(|error| Trouble::new(&first.path, error))?;
    let mut crossings = BTreeMap::new();
    let exchanged = cross(&passage, &mut held, &opens, &mut crossings);
    for (at, crossing) in crossings {
        crossing.close(&mut held[at]);
    }
    exchanged
}

/// Stops all processes that have a deleted file open.
fn hold_all(devices: &BTreeSet<u64>) -> Result<Vec<Held>, Trouble> {
    let mut held: Vec<Held> = Vec::new();
    for _ in 0..ROUNDS {
        let mut found = find::everywhere(devices)?;
        found.retain(|open| held.iter().all(|held| held.process() != open.process));
        if found.is_empty() {
            return Ok(held);
        }
        // Until it is stopped, a process may start others, which have the same files open. Those
        // are found in the next round, also if it has ended meanwhile.
        for Open { process, path, .. } in &found {
            if held.iter().all(|held| held.process() != *process) {
                held.extend(Held::hold(*process).map_err(|error| Trouble::new(path, error))?);
            }
        }
    }
    let path = find::everywhere(devices)?.into_iter().next().map(|open| open.path).unwrap_or_default();
    Err(Trouble::new(&path, "programs that have it open start others faster than they can be stopped"))
}

/// Takes all descriptors and replaces them by copies. `opens` contains the index of each owner.
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
