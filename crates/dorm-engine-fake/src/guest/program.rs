//! The programs of a fake guest. Each is a value that can be serialized at any moment and continues
//! from there, so a saved guest continues exactly. No program runs on its own: the guest steps it.
//!
//! | program | does |
//! |---|---|
//! | `true`, `false`, `echo`, `pwd`, `env`, `hostname`, `whoami`, `id`, `seq`, `ls`, `mkdir`, `rm`, `touch` | the simplest form of the command |
//! | `cat [FILE…]` | prints the files, or its input until that is closed |
//! | `sleep SECONDS` | waits; time does not pass while the guest is paused |
//! | `yes [WORD]` | prints without end, 1 KiB per millisecond |
//! | `counter [TOKEN]` | answers each line of its input with the token and a number that rises by one |
//! | `ticker` | prints a number that rises by one every 5 ms, without end |
//! | `hold-deleted` | keeps a deleted file open, and answers each line of its input with the file's next line |
//! | `allocate BYTES` | allocates that much memory, piece by piece, and keeps it |
//! | `serve PORT` | answers every HTTP request on that port with [`SERVED`](crate::SERVED) |
//! | `mirror PORT` | sends back everything it receives on that port |
//! | `sh`, `bash` | see [`super::shell`] |

use std::collections::BTreeMap;

use dorm_agent_proto::{GuestPath, Parents, RemoveScope};
use serde::{Deserialize, Serialize};

use super::bytes;
use super::files::{Files, Stamp};
use super::shell::Shell;

/// The memory of a process besides what it allocates: a real one uses some too.
pub(crate) const PROGRAM_MEMORY: u64 = 1 << 20;

const TICK_US: u64 = 5_000;
const FLOOD_US: u64 = 1_000;
const BITE: u64 = 16 << 20;
const BITE_US: u64 = 1_000;

/// A program and its progress.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Program {
    Said {
        #[serde(with = "bytes")]
        out: Vec<u8>,
        #[serde(with = "bytes")]
        err: Vec<u8>,
        code: i32,
    },
    Cat,
    Sleep {
        until_us: u64,
    },
    Yes {
        word: String,
        next_us: u64,
    },
    Counter {
        token: String,
        count: u64,
    },
    Ticker {
        count: u64,
        next_us: u64,
    },
    HoldDeleted {
        #[serde(with = "bytes")]
        file: Vec<u8>,
        at: usize,
    },
    Allocate {
        eaten: u64,
        wanted: u64,
        next_us: u64,
    },
    Listen {
        port: u16,
        service: Service,
    },
    Shell(Box<Shell>),
}

/// A service on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Service {
    Http,
    Mirror,
}

/// The input that a process has not read yet.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Input {
    #[serde(with = "bytes")]
    pub(crate) bytes: Vec<u8>,
    pub(crate) open: bool,
}

impl Input {
    pub(crate) fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = match self.bytes.iter().position(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if !self.open && !self.bytes.is_empty() => self.bytes.len(),
            None => return None,
        };
        let mut line: Vec<u8> = self.bytes.drain(..end).collect();
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        Some(line)
    }
}

/// The parts of the guest that a step reads and changes.
pub(crate) struct Surroundings<'a> {
    pub(crate) files: &'a mut Files,
    pub(crate) now_us: u64,
    pub(crate) stamp: Stamp,
    pub(crate) pid: u32,
    pub(crate) hostname: &'a str,
    pub(crate) variables: &'a mut BTreeMap<String, String>,
    pub(crate) directory: &'a mut String,
    pub(crate) input: &'a mut Input,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

impl Surroundings<'_> {
    pub(crate) fn path(&self, word: &str) -> Option<GuestPath> {
        let whole = if word.starts_with('/') { word.to_owned() } else { format!("{}/{word}", self.directory) };
        GuestPath::try_from(whole).ok()
    }
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// The program did something and may do more.
    Moved,
    /// The program waits for input or a signal.
    Waits,
    /// The program waits until this time of the guest's clock, in microseconds.
    WaitsUntil(u64),
    /// The program has ended with this code.
    Exited(i32),
}

/// Returns the program that `words` name; `None` if there is no such program.
pub(crate) fn begin(words: &[String], around: &mut Surroundings<'_>) -> Option<Program> {
    let (command, arguments) = words.split_first()?;
    let name = ["/bin/", "/usr/bin/", "/usr/local/bin/"]
        .iter()
        .find_map(|directory| command.strip_prefix(directory))
        .unwrap_or(command);
    let first = || arguments.first().map(String::as_str).unwrap_or_default();
    Some(match name {
        "true" | ":" => said("", 0),
        "false" => said("", 1),
        "cat" if arguments.is_empty() || first() == "-" => Program::Cat,
        "sleep" => match first().parse::<f64>() {
            Ok(seconds) if seconds >= 0.0 => {
                Program::Sleep { until_us: around.now_us.saturating_add((seconds * 1e6) as u64) }
            }
            Ok(_) | Err(_) => complaint(format!("sleep: invalid time interval '{}'\n", first())),
        },
        "yes" => {
            let word = if arguments.is_empty() { "y".to_owned() } else { arguments.join(" ") };
            Program::Yes { word, next_us: around.now_us }
        }
        "counter" => Program::Counter { token: first().to_owned(), count: 0 },
        "ticker" => Program::Ticker { count: 0, next_us: around.now_us },
        "hold-deleted" => {
            let lines: String = (1..=100).map(|line| format!("line {line}\n")).collect();
            Program::HoldDeleted { file: lines.into_bytes(), at: 0 }
        }
        "allocate" => match first().parse() {
            Ok(wanted) => Program::Allocate { eaten: 0, wanted, next_us: around.now_us },
            Err(_) => complaint("allocate: how many bytes?\n".to_owned()),
        },
        "serve" | "mirror" => match first().parse() {
            Ok(port) => {
                let service = if name == "serve" { Service::Http } else { Service::Mirror };
                Program::Listen { port, service }
            }
            Err(_) => complaint(format!("{name}: which port?\n")),
        },
        "sh" | "bash" | "dash" => Program::Shell(Box::new(Shell::begin(arguments, around))),
        _ => return simple(name, arguments, around),
    })
}

/// Returns a program that ends at once.
fn simple(name: &str, arguments: &[String], around: &mut Surroundings<'_>) -> Option<Program> {
    let operands = || arguments.iter().filter(|word| !word.starts_with('-'));
    Some(match name {
        "echo" => match arguments.split_first() {
            Some((option, rest)) if option == "-n" => said(&rest.join(" "), 0),
            _ => said(&format!("{}\n", arguments.join(" ")), 0),
        },
        "printf" => said(&arguments.first().cloned().unwrap_or_default().replace("\\n", "\n"), 0),
        "pwd" => said(&format!("{}\n", around.directory), 0),
        "hostname" => said(&format!("{}\n", around.hostname), 0),
        "env" | "printenv" => match arguments.first() {
            Some(name) => match around.variables.get(name) {
                Some(value) => said(&format!("{value}\n"), 0),
                None => said("", 1),
            },
            None => {
                said(&around.variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect::<String>(), 0)
            }
        },
        "whoami" => {
            let uid = around.stamp.uid;
            let name = around.files.users().into_iter().find(|(_, id, ..)| *id == uid).map(|(name, ..)| name);
            said(&format!("{}\n", name.unwrap_or_else(|| uid.to_string())), 0)
        }
        "id" => said(&format!("{}\n", around.stamp.uid), 0),
        "seq" => {
            let number = |at: usize| arguments.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(1);
            let (from, to) = if arguments.len() > 1 { (number(0), number(1)) } else { (1, number(0)) };
            said(&(from..=to).map(|number| format!("{number}\n")).collect::<String>(), 0)
        }
        "cat" => for_each(arguments.iter(), around, |around, path| {
            let bytes = around.files.read(path)?.into_owned();
            around.out.extend(bytes);
            Ok(())
        }),
        "ls" => {
            let here = around.directory.clone();
            let mut wanted: Vec<&String> = operands().collect();
            if wanted.is_empty() {
                wanted.push(&here);
            }
            for_each(wanted.into_iter(), around, |around, path| {
                for entry in around.files.list(path, 1)? {
                    let name = entry.path.to_text();
                    around.out.extend(name.rsplit('/').next().unwrap_or_default().bytes().chain([b'\n']));
                }
                Ok(())
            })
        }
        "mkdir" => {
            let parents = if arguments.iter().any(|word| word == "-p") { Parents::Create } else { Parents::Require };
            for_each(operands(), around, |around, path| {
                around.files.make_directory(path, parents, around.stamp).map(drop)
            })
        }
        "rm" => {
            let tree = arguments.iter().any(|word| word.starts_with('-') && word.contains('r'));
            let scope = if tree { RemoveScope::Tree } else { RemoveScope::Single };
            for_each(operands(), around, |around, path| around.files.remove(path, scope))
        }
        "touch" => for_each(operands(), around, |around, path| around.files.append(path, b"", around.stamp)),
        _ => return None,
    })
}

fn for_each<'w>(
    words: impl Iterator<Item = &'w String>,
    around: &mut Surroundings<'_>,
    mut act: impl FnMut(&mut Surroundings<'_>, &GuestPath) -> Result<(), dorm_agent_proto::Failure>,
) -> Program {
    let mut err = String::new();
    for word in words {
        match around.path(word).map(|path| act(around, &path)) {
            Some(Ok(())) => {}
            Some(Err(failure)) => err.push_str(&format!("{failure}\n")),
            None => err.push_str(&format!("'{word}' is not a path\n")),
        }
    }
    let out = std::mem::take(&mut around.out);
    Program::Said { out, code: i32::from(!err.is_empty()), err: err.into_bytes() }
}

fn said(text: &str, code: i32) -> Program {
    Program::Said { out: text.as_bytes().to_vec(), err: Vec::new(), code }
}

fn complaint(text: String) -> Program {
    Program::Said { out: Vec::new(), err: text.into_bytes(), code: 1 }
}

impl Program {
    /// Does the next step of the program.
    pub(crate) fn step(&mut self, around: &mut Surroundings<'_>) -> Progress {
        match self {
            Self::Said { out, err, code } => {
                around.out.append(out);
                around.err.append(err);
                Progress::Exited(*code)
            }
            Self::Cat if around.input.bytes.is_empty() => {
                if around.input.open {
                    Progress::Waits
                } else {
                    Progress::Exited(0)
                }
            }
            Self::Cat => {
                around.out.append(&mut around.input.bytes);
                Progress::Moved
            }
            Self::Sleep { until_us } if *until_us > around.now_us => Progress::WaitsUntil(*until_us),
            Self::Sleep { .. } => Progress::Exited(0),
            Self::Yes { next_us, .. } | Self::Ticker { next_us, .. } if *next_us > around.now_us => {
                Progress::WaitsUntil(*next_us)
            }
            Self::Yes { word, next_us } => {
                while around.out.len() < 1024 {
                    around.out.extend(word.bytes().chain([b'\n']));
                }
                *next_us = around.now_us + FLOOD_US;
                Progress::Moved
            }
            Self::Ticker { count, next_us } => {
                *count += 1;
                around.out.extend(format!("{count}\n").bytes());
                *next_us = around.now_us + TICK_US;
                Progress::Moved
            }
            Self::Counter { token, count } => answer_line(around, |_| {
                *count += 1;
                if token.is_empty() { format!("{count}") } else { format!("{token} {count}") }
            }),
            Self::HoldDeleted { file, at } => answer_line(around, |_| {
                let rest = &file[*at..];
                let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
                *at = (*at + line.len() + 1).min(file.len());
                String::from_utf8_lossy(line).into_owned()
            }),
            Self::Allocate { eaten, wanted, next_us } => {
                if eaten >= wanted {
                    return Progress::Waits;
                }
                if *next_us > around.now_us {
                    return Progress::WaitsUntil(*next_us);
                }
                *eaten = (*eaten + BITE).min(*wanted);
                *next_us = around.now_us + BITE_US;
                Progress::Moved
            }
            Self::Listen { .. } => Progress::Waits,
            Self::Shell(shell) => shell.step(around),
        }
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Allocate { eaten, .. } => PROGRAM_MEMORY + eaten,
            Self::Shell(shell) => PROGRAM_MEMORY + shell.child().map_or(0, Program::memory),
            Self::Said { .. }
            | Self::Cat
            | Self::Sleep { .. }
            | Self::Yes { .. }
            | Self::Counter { .. }
            | Self::Ticker { .. }
            | Self::HoldDeleted { .. }
            | Self::Listen { .. } => PROGRAM_MEMORY,
        }
    }

    /// Returns the service on `port`, if the program listens there.
    pub(crate) fn listens(&self, port: u16) -> Option<Service> {
        match self {
            Self::Listen { port: own, service } if *own == port => Some(*service),
            Self::Shell(shell) => shell.child().and_then(|child| child.listens(port)),
            _ => None,
        }
    }
}

fn answer_line(around: &mut Surroundings<'_>, answer: impl FnOnce(&[u8]) -> String) -> Progress {
    match around.input.take_line() {
        Some(line) => {
            around.out.extend(answer(&line).bytes().chain([b'\n']));
            Progress::Moved
        }
        None if around.input.open => Progress::Waits,
        None => Progress::Exited(0),
    }
}
