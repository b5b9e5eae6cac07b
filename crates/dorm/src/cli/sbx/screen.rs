//! A terminal in a sandbox, shown on this process's terminal: every key is passed to it, its output
//! is shown here, and it follows the size of this terminal. This terminal is restored in every
//! case.

use std::io::IsTerminal as _;

use dorm_api_types as wire;
use dorm_client::{Client, TerminalEvent};
use futures_util::StreamExt as _;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use super::command::{code, lost_output, our_input};
use crate::cli::output;
use crate::cli::problem::{Done, Problem};
use crate::cli::shown;
use crate::cli::signals::{Signals, ended_by};

/// The source of the terminal's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// This process's standard input.
    Ours,
    /// No input.
    None,
}

/// Returns the size of this terminal, or 24 lines of 80 characters if there is none.
pub(super) fn size() -> wire::TerminalSize {
    let found = tcgetwinsize(std::io::stdout()).or_else(|_| tcgetwinsize(std::io::stdin())).ok();
    found.filter(|size| size.ws_row > 0 && size.ws_col > 0).map_or(wire::TerminalSize { rows: 24, cols: 80 }, |size| {
        wire::TerminalSize { rows: size.ws_row, cols: size.ws_col }
    })
}

/// Returns the type of this terminal, as in `TERM`.
pub(super) fn kind() -> String {
    std::env::var("TERM")
        .ok()
        .filter(|kind| !kind.is_empty() && kind != "dumb")
        .unwrap_or_else(|| "xterm-256color".to_owned())
}

/// Shows the terminal that `query` asks for until its command ends, and returns the command's exit
/// code.
pub(super) async fn show(client: &Client, sandbox: &str, query: &[(&str, String)], input: Input) -> Done {
    let at = size();
    let mut query = query.to_vec();
    query.extend([("rows", at.rows.to_string()), ("cols", at.cols.to_string())]);
    let mut terminal = client.terminal(sandbox, &query).await?;
    let mut signals = Signals::new()?;
    let mut resized =
        signal(SignalKind::window_change()).map_err(|error| Problem::host("listen for signals", &error))?;
    let _raw = match input {
        Input::Ours => Raw::enter()?,
        Input::None => None,
    };
    let mut typed = match input {
        Input::Ours => our_input().boxed(),
        Input::None => futures_util::stream::pending().boxed(),
    };
    let (mut typing, mut lost) = (true, 0);
    loop {
        tokio::select! {
            event = terminal.output.next() => match event? {
                TerminalEvent::Started(_) => {}
                TerminalEvent::Output(bytes) => output::write(&bytes)?,
                TerminalEvent::Lost(bytes) => {
                    lost += bytes;
                    output::talk(&format!("[{} lost]\r", shown::size(bytes)));
                }
                TerminalEvent::Exited(status) if lost > 0 => return Err(lost_output(lost, status)),
                TerminalEvent::Exited(status) => return Ok(code(status)),
            },
            piece = typed.next(), if typing => match piece {
                Some(Ok(bytes)) => terminal.input.write(bytes).await,
                Some(Err(_)) | None => {
                    typing = false;
                    terminal.input.end().await;
                }
            },
            _ = resized.recv() => terminal.input.resize(size()).await,
            number = signals.next() => return Ok(ended_by(number)),
        }
    }
}

/// This process's terminal in raw mode; restored on drop.
struct Raw {
    before: Termios,
}

impl Raw {
    /// Returns `None` if standard input is not a terminal.
    fn enter() -> Result<Option<Self>, Problem> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let set = || -> rustix::io::Result<Self> {
            let before = tcgetattr(&stdin)?;
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(&stdin, OptionalActions::Now, &raw)?;
            Ok(Self { before })
        };
        set().map(Some).map_err(|error| Problem::host("set up the terminal", &error.into()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // If the terminal is gone, nothing more can be done.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
