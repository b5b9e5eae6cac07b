//! One process of a fake guest: its program, its input and the part of its output that is kept.

use std::collections::BTreeMap;

use dorm_agent_proto::{ExitStatus, FirstReader, Offsets, OutputKind, ProcessSpec, ProcessStatus, Stdin, TerminalSize};
use serde::{Deserialize, Serialize};

use super::bytes;
use super::program::{Input, Program};

/// A process, living or ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) handle: u64,
    pub(crate) pid: u32,
    pub(crate) spec: ProcessSpec,
    pub(crate) program: Program,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) directory: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) input: Input,
    pub(crate) stdout: Ring,
    pub(crate) stderr: Ring,
    /// When the output in the rings was written, the oldest first.
    #[serde(default)]
    pub(crate) marks: Vec<Mark>,
    pub(crate) started_unix_ms: u64,
    pub(crate) exit: Option<ExitStatus>,
    /// When it is killed, in microseconds of the guest's clock.
    #[serde(default)]
    pub(crate) limit_us: Option<u64>,
    /// Whether it was killed at that time.
    #[serde(default)]
    pub(crate) timed_out: bool,
    /// The exit status of the program, while its last output waits for a reader.
    pub(crate) ending: Option<ExitStatus>,
    /// Output that is held back because a reader would lose some; the program does not run
    /// meanwhile.
    #[serde(with = "bytes")]
    pub(crate) held_out: Vec<u8>,
    #[serde(with = "bytes")]
    pub(crate) held_err: Vec<u8>,
    /// Whether it has had a reader.
    pub(crate) read: bool,
    /// The present readers of its output, and their offsets. Readers do not survive a save.
    #[serde(skip)]
    pub(crate) readers: BTreeMap<u64, Offsets>,
}

/// Bytes of an output stream that were written at one time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) kind: OutputKind,
    pub(crate) end: u64,
    pub(crate) unix_ms: u64,
}

/// The end of an output stream, and the offset of its first byte.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ring {
    start: u64,
    #[serde(with = "bytes")]
    bytes: Vec<u8>,
    kept: usize,
}

impl Ring {
    pub(crate) fn new(kept: u32) -> Self {
        Self { start: 0, bytes: Vec::new(), kept: usize::try_from(kept).unwrap_or(usize::MAX).max(1) }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(self.kept);
        self.bytes.drain(..surplus);
        self.start += surplus as u64;
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Returns at most `most` bytes from `offset`, which is not before the start.
    pub(crate) fn from(&self, offset: u64, most: usize) -> &[u8] {
        let at = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.bytes.len());
        &self.bytes[at..(at + most).min(self.bytes.len())]
    }

    /// Moves as much of `held` into the ring as it can keep without the slowest reader losing any;
    /// returns the number of bytes.
    fn take(&mut self, held: &mut Vec<u8>, slowest: Option<u64>) -> usize {
        let kept = self.kept as u64;
        let room = slowest.map_or(u64::MAX, |at| kept.saturating_sub(self.end().saturating_sub(at)));
        let fits = held.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.push(&held[..fits]);
        held.drain(..fits);
        fits
    }
}

/// How much of the output was moved to where readers find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    All,
    Some,
    Nothing,
}

impl Process {
    /// Returns what keeps the output of several such processes.
    pub(crate) fn log(&self, handle: u64) -> Self {
        Self {
            handle,
            pid: self.pid,
            spec: self.spec.clone(),
            program: Program::Cat,
            variables: BTreeMap::new(),
            directory: self.directory.clone(),
            uid: self.uid,
            gid: self.gid,
            input: Input { bytes: Vec::new(), open: false },
            stdout: Ring::new(self.spec.output_kept),
            stderr: Ring::new(self.spec.output_kept),
            marks: Vec::new(),
            started_unix_ms: self.started_unix_ms,
            exit: None,
            limit_us: None,
            timed_out: false,
            ending: None,
            held_out: Vec::new(),
            held_err: Vec::new(),
            read: false,
            readers: BTreeMap::new(),
        }
    }

    pub(crate) fn ring(&self, kind: OutputKind) -> &Ring {
        match kind {
            OutputKind::Stdout => &self.stdout,
            OutputKind::Stderr => &self.stderr,
        }
    }

    /// Takes the output of the program. A terminal merges both streams, and adds carriage returns.
    pub(crate) fn print(&mut self, out: &[u8], err: &[u8]) {
        if self.spec.terminal.is_some() {
            self.show(out);
            self.show(err);
        } else {
            self.held_out.extend_from_slice(out);
            self.held_err.extend_from_slice(err);
        }
    }

    pub(crate) fn show(&mut self, text: &[u8]) {
        for byte in text {
            if *byte == b'\n' {
                self.held_out.push(b'\r');
            }
            self.held_out.push(*byte);
        }
    }

    /// Moves output to where readers find it, but no more than they can keep up with: the present
    /// readers, or the first reader, if it is still expected.
    pub(crate) fn flush(&mut self, unix_ms: u64) -> Flushed {
        let to_come = (self.spec.first_reader == FirstReader::Expected && !self.read).then_some(Offsets::BEGINNING);
        let readers = || self.readers.values().copied().chain(to_come);
        let (out, err) = (readers().map(|at| at.stdout).min(), readers().map(|at| at.stderr).min());
        let taken = self.stdout.take(&mut self.held_out, out) + self.stderr.take(&mut self.held_err, err);
        if taken > 0 {
            self.mark(unix_ms);
        }
        match (self.held_out.is_empty() && self.held_err.is_empty(), taken) {
            (true, _) => Flushed::All,
            (false, 0) => Flushed::Nothing,
            (false, _) => Flushed::Some,
        }
    }

    fn mark(&mut self, unix_ms: u64) {
        for (kind, end) in [(OutputKind::Stdout, self.stdout.end()), (OutputKind::Stderr, self.stderr.end())] {
            let marked = self.marks.iter().rev().find(|mark| mark.kind == kind).map_or(0, |mark| mark.end);
            match self.marks.last_mut() {
                _ if end == marked => {}
                Some(last) if (last.kind, last.unix_ms) == (kind, unix_ms) => last.end = end,
                _ => self.marks.push(Mark { kind, end, unix_ms }),
            }
        }
        let (out, err) = (self.stdout.start(), self.stderr.start());
        self.marks.retain(|mark| mark.end > if mark.kind == OutputKind::Stdout { out } else { err });
    }

    pub(crate) fn takes_input(&self) -> bool {
        self.exit.is_none()
            && self.ending.is_none()
            && self.input.open
            && (self.spec.terminal.is_some() || matches!(self.spec.stdin, Stdin::Pipe))
    }

    pub(crate) fn resize(&mut self, size: TerminalSize) -> bool {
        match &mut self.spec.terminal {
            Some(own) => {
                *own = size;
                true
            }
            None => false,
        }
    }

    pub(crate) fn status(&self) -> Option<ProcessStatus> {
        Some(ProcessStatus {
            process: self.handle,
            pid: self.pid,
            arguments: self.spec.arguments.clone(),
            directory: self.directory.as_str().try_into().ok()?,
            variables: self.spec.variables.clone(),
            user: self.spec.user.clone(),
            label: self.spec.label.clone(),
            terminal: self.spec.terminal,
            started_unix_ms: self.started_unix_ms,
            written: Offsets { stdout: self.stdout.end(), stderr: self.stderr.end() },
            exit: self.exit,
            timed_out: self.timed_out,
        })
    }
}
