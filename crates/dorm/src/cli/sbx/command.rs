//! A command in a sandbox, run in the foreground: its output is printed here byte for byte, this
//! process's input and signals are passed to it, and its exit code becomes this process's own.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};

use bytes::Bytes;
use dorm_api_types as wire;
use dorm_client::{Client, CommandEvent, CommandEvents, Position};
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::screen;
use crate::cli::output;
use crate::cli::problem::{Done, Problem};
use crate::cli::progress::Progress;
use crate::cli::shown;
use crate::cli::signals::{Signals, ended_by};
use crate::exit;

/// How many pieces of output wait for a slow reader before the command has to wait.
const PIECES: usize = 1024;
const PIECE_BYTES: usize = 64 << 10;
/// How much output a command keeps for a reader that follows shortly after the start.
const KEPT_BYTES: u32 = 8 << 20;
/// How many signals the user must send before dorm leaves a command that does not end.
const PATIENCE: usize = 3;
const SIGPIPE: i32 = 13;

/// Options for how a command is run.
#[derive(Debug, clap::Args)]
pub(super) struct CommandOptions {
    /// Directory in the sandbox to start in
    #[arg(short, long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// User to run as: a name, a number, or UID:GID
    #[arg(short, long)]
    user: Option<String>,
    /// Allocate a terminal
    #[arg(short, long)]
    tty: bool,
    /// Pass standard input to the command
    #[arg(short, long)]
    interactive: bool,
    /// How long the command may run, in seconds.
    #[arg(skip)]
    limit: Option<f64>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl CommandOptions {
    /// Limits the time of the command, in seconds.
    pub(super) fn within(self, limit: Option<f64>) -> Self {
        Self { limit, ..self }
    }

    /// Returns whether the result and the output can be printed as one document.
    pub(super) fn fits_a_document(&self) -> bool {
        !self.tty && !self.interactive
    }

    /// Returns the request for a command without input.
    pub(super) fn exec(self, env: Vec<(String, String)>) -> wire::ExecRequest {
        wire::ExecRequest {
            argv: Some(self.command.iter().map(|word| wire::Text::from_bytes(word.as_encoded_bytes())).collect()),
            env: env.into_iter().collect(),
            cwd: self.workdir.map(wire::Text::Plain),
            user: self.user,
            timeout_secs: self.limit,
            ..wire::ExecRequest::default()
        }
    }

    /// Returns the request for a command with input or with a terminal.
    fn start(self, env: Vec<(String, String)>, terminal: Option<wire::TerminalSize>) -> wire::StartProcess {
        let (interactive, exec) = (self.interactive, self.exec(env));
        wire::StartProcess {
            argv: exec.argv,
            env: exec.env,
            cwd: exec.cwd,
            user: exec.user,
            timeout_secs: exec.timeout_secs,
            stdin: if interactive { wire::Stdin::Pipe } else { wire::Stdin::Empty },
            terminal,
            output_kept_bytes: Some(KEPT_BYTES),
            ..wire::StartProcess::default()
        }
    }
}

/// Runs a command to its end and returns its exit code.
pub(super) async fn run(
    client: &Client,
    sandbox: &str,
    options: CommandOptions,
    mut env: Vec<(String, String)>,
) -> Done {
    if options.tty {
        if !env.iter().any(|(name, _)| name == "TERM") {
            env.push(("TERM".to_owned(), screen::kind()));
        }
        let input = if options.interactive { screen::Input::Ours } else { screen::Input::None };
        let process = client.start(sandbox, &options.start(env, Some(screen::size()))).await?;
        return screen::show(client, sandbox, &[("attach", process.to_string())], input).await;
    }
    if !options.interactive {
        let events = client.exec(sandbox, &options.exec(env)).await?;
        return follow(client, sandbox, None, events).await;
    }
    let process = client.start(sandbox, &options.start(env, None)).await?;
    let events = client.follow(sandbox, process, Position::default()).await?;
    let feeder = {
        let (client, sandbox) = (client.clone(), sandbox.to_owned());
        tokio::spawn(async move {
            if let Err(error) = client.feed(&sandbox, process, our_input()).await {
                Problem::from(error).during("the command did not get all of its input").tell();
            }
        })
    };
    let done = follow(client, sandbox, Some(process), events).await;
    feeder.abort();
    done
}

/// Takes a snapshot, then runs a command without input to its end.
pub(super) async fn run_after_checkpoint(
    client: &Client,
    sandbox: &str,
    asked: wire::ExecRequest,
    kind: wire::SnapshotKind,
) -> Done {
    let progress = Progress::new(&format!("taking a snapshot of {sandbox}"));
    let events = client.exec(sandbox, &wire::ExecRequest { checkpoint: Some(kind), ..asked }).await;
    drop(progress);
    follow(client, sandbox, None, events?).await
}

/// Runs a command to its end and prints its result as one document.
pub(super) async fn run_whole(client: &Client, sandbox: &str, asked: &wire::ExecRequest) -> Done {
    let result = client.exec_whole(sandbox, asked).await?;
    output::json(&result)?;
    Ok(code(wire::ExitStatus { exit_code: result.exit_code, signal: result.signal, timed_out: result.timed_out }))
}

/// Returns the exit code of dorm for a command that has ended.
pub(super) fn code(status: wire::ExitStatus) -> u8 {
    let code = match (status.exit_code, status.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => i32::from(exit::SIGNAL) + signal,
        (None, None) => i32::from(exit::NOT_THE_COMMAND),
    };
    u8::try_from(code & 0xff).unwrap_or(exit::NOT_THE_COMMAND)
}

async fn follow(client: &Client, sandbox: &str, mut process: Option<u64>, mut events: CommandEvents) -> Done {
    let mut signals = Signals::new()?;
    let mut printer = Printer::new();
    let (mut asked_to_end, mut lost, mut waiting) = (0, 0, None);
    loop {
        let event = tokio::select! {
            event = events.next(), if waiting.is_none() => event?,
            () = printer.print(&mut waiting), if waiting.is_some() => continue,
            number = signals.next() => {
                asked_to_end += 1;
                if let Some(process) = process {
                    client.signal(sandbox, process, number).await?;
                }
                if asked_to_end >= PATIENCE {
                    output::talk("the command keeps running in the sandbox");
                    return Ok(ended_by(number));
                }
                continue;
            }
            () = printer.closed() => {
                if let Some(process) = process {
                    client.signal(sandbox, process, SIGPIPE).await?;
                }
                return Err(printer.end().await.err().unwrap_or_else(Problem::closed_output));
            }
        };
        match event {
            CommandEvent::Checkpoint(snapshot) => output::talk(&format!("took snapshot {snapshot} before the command")),
            CommandEvent::Started(handle) => process = Some(handle),
            CommandEvent::Stdout(chunk) => waiting = Some(Piece::Stdout(chunk.bytes)),
            CommandEvent::Stderr(chunk) => waiting = Some(Piece::Stderr(chunk.bytes)),
            CommandEvent::Lost(gap) => lost += gap.bytes,
            CommandEvent::Exited(status) => {
                tokio::select! {
                    printed = printer.end() => printed?,
                    number = signals.next() => return Ok(ended_by(number)),
                }
                if status.timed_out {
                    output::talk("the command was killed at its time limit");
                }
                return match lost {
                    0 => Ok(code(status)),
                    lost => Err(lost_output(lost, status)),
                };
            }
        }
    }
}

/// Returns the error for incomplete output, which must not look like success.
pub(super) fn lost_output(bytes: u64, status: wire::ExitStatus) -> Problem {
    let message = format!(
        "lost {} of the command's output, which was not read in time (the command ended with code {})",
        shown::size(bytes),
        code(status)
    );
    Problem::failed(message, "write large output to a file in the sandbox and copy the file with `dorm sbx cp`")
}

pub(super) enum Piece {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
}

/// Writes output to standard output and standard error, on a thread that can wait for a slow
/// reader.
pub(super) struct Printer {
    pieces: Option<mpsc::Sender<Piece>>,
    closed: CancellationToken,
    writer: JoinHandle<Result<(), Problem>>,
}

impl Printer {
    pub(super) fn new() -> Self {
        let (pieces, mut taken) = mpsc::channel(PIECES);
        let closed = CancellationToken::new();
        let on_end = closed.clone().drop_guard();
        let writer = tokio::task::spawn_blocking(move || {
            let on_end = on_end;
            while let Some(piece) = taken.blocking_recv() {
                match piece {
                    Piece::Stdout(bytes) => output::write(&bytes)?,
                    // If standard error is closed, the output is not wanted.
                    Piece::Stderr(bytes) => drop(std::io::stderr().write_all(&bytes)),
                }
            }
            drop(on_end.disarm());
            Ok(())
        });
        Self { pieces: Some(pieces), closed, writer }
    }

    /// Passes on a piece as soon as there is room for it.
    async fn print(&self, piece: &mut Option<Piece>) {
        let room = match &self.pieces {
            Some(pieces) => pieces.reserve().await.ok(),
            None => None,
        };
        // There is no room if the writer has ended; `closed` reports that.
        if let (Some(room), Some(piece)) = (room, piece.take()) {
            room.send(piece);
        }
    }

    /// Passes on a piece, unless output can no longer be written.
    pub(super) async fn put(&mut self, piece: Piece) -> Result<(), Problem> {
        let mut piece = Some(piece);
        tokio::select! {
            biased;
            () = self.print(&mut piece) => Ok(()),
            () = self.closed() => Err(self.end().await.err().unwrap_or_else(Problem::closed_output)),
        }
    }

    /// Waits until output can no longer be written.
    async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Waits until all output is written.
    pub(super) async fn end(&mut self) -> Result<(), Problem> {
        self.pieces = None;
        (&mut self.writer)
            .await
            .unwrap_or_else(|error| Err(Problem::failed(format!("cannot write output: {error}"), "")))
    }
}

/// Returns this process's standard input as a stream, read by a thread that may block forever.
pub(in crate::cli) fn our_input() -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let (pieces, taken) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let piece = match stdin.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => Ok(Bytes::copy_from_slice(&buffer[..length])),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = piece.is_err();
            if pieces.blocking_send(piece).is_err() || failed {
                return;
            }
        }
    });
    futures_util::stream::unfold(taken, |mut taken| async move { taken.recv().await.map(|piece| (piece, taken)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_told_as_shells_do() {
        let status = |exit_code, signal| wire::ExitStatus { exit_code, signal, timed_out: false };
        assert_eq!(code(status(Some(7), None)), 7);
        assert_eq!(code(status(Some(255), None)), 255);
        assert_eq!(code(status(None, Some(9))), 137);
        assert_eq!(code(status(None, None)), 125);
    }
}
