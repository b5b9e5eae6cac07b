//! The trace of a simulation run, line by line: a hash of all lines, the last of them, and the
//! first failed check.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The number of last lines that are kept.
const TAIL: usize = 120;

/// Whether every line is printed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Echo {
    /// No line is printed; a failure has the last ones.
    #[default]
    Off,
    /// Every line goes to standard error.
    On,
}

/// The trace of one simulation run. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    began: Instant,
    hash: u64,
    lines: u64,
    tail: VecDeque<String>,
    echo: Echo,
    /// The directory of this simulation run, which has another name in each replay.
    directory: String,
    wrong: Option<String>,
}

impl Trace {
    pub(crate) fn new(directory: String, echo: Echo) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            began: Instant::now(),
            hash: 0xcbf2_9ce4_8422_2325,
            lines: 0,
            tail: VecDeque::new(),
            echo,
            directory,
            wrong: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, text: impl Display) {
        let mut inner = self.lock();
        let mut line = format!("{:>8} {text}", inner.began.elapsed().as_millis());
        if line.contains(&inner.directory) {
            line = line.replace(&inner.directory, "DIR");
        }
        // FNV-1a.
        for byte in line.bytes() {
            inner.hash = (inner.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        inner.lines += 1;
        if inner.echo == Echo::On {
            eprintln!("{line}");
        }
        if inner.tail.len() == TAIL {
            inner.tail.pop_front();
        }
        inner.tail.push_back(line);
    }

    /// Notes something that must never happen. Only the first such thing counts.
    pub(crate) fn wrong(&self, what: impl Display) {
        let text = what.to_string();
        self.note(format!("WRONG: {text}"));
        self.lock().wrong.get_or_insert(text);
    }

    pub(crate) fn is_wrong(&self) -> bool {
        self.lock().wrong.is_some()
    }

    /// The hash of all lines, their number, and the first failure with the last lines.
    pub(crate) fn end(&self) -> (u64, u64, Option<(String, Vec<String>)>) {
        let inner = self.lock();
        let wrong = inner.wrong.clone().map(|wrong| (wrong, inner.tail.iter().cloned().collect()));
        (inner.hash, inner.lines, wrong)
    }
}
