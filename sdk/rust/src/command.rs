//! Runs and starts commands in a sandbox.

use std::future::IntoFuture;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::client::{Client, ClientError};
use crate::process::{CommandStream, Output, Process};
use crate::types::{ExecRequest, SnapshotKind, StartProcess, Stdin, TerminalSize, Text};

/// The longest input that is part of the request, whose body is limited to 1 MiB.
const INPUT_MAX: usize = 256 << 10;

/// A command: a line for `/bin/sh`, or a program with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandLine {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// A program and its arguments, which no shell reads.
    Program(Vec<Text>),
}

impl From<&str> for CommandLine {
    fn from(line: &str) -> Self {
        Self::Shell(line.to_owned())
    }
}

impl From<String> for CommandLine {
    fn from(line: String) -> Self {
        Self::Shell(line)
    }
}

impl From<&String> for CommandLine {
    fn from(line: &String) -> Self {
        Self::Shell(line.clone())
    }
}

impl<const N: usize> From<[&str; N]> for CommandLine {
    fn from(words: [&str; N]) -> Self {
        Self::from(&words[..])
    }
}

impl From<&[&str]> for CommandLine {
    fn from(words: &[&str]) -> Self {
        Self::Program(words.iter().map(|word| Text::Plain((*word).to_owned())).collect())
    }
}

impl From<Vec<String>> for CommandLine {
    fn from(words: Vec<String>) -> Self {
        Self::Program(words.into_iter().map(Text::Plain).collect())
    }
}

impl CommandLine {
    fn parts(self) -> (Option<String>, Option<Vec<Text>>) {
        match self {
            Self::Shell(line) => (Some(line), None),
            Self::Program(words) => (None, Some(words)),
        }
    }
}

macro_rules! settings_of_commands {
    () => {
        /// A variable in addition to those of the sandbox.
        pub fn env(mut self, name: &str, value: &str) -> Self {
            self.asked.env.insert(name.to_owned(), value.to_owned());
            self
        }

        /// The working directory. Default: that of the image, or the home directory of the user.
        pub fn cwd(mut self, path: &str) -> Self {
            self.asked.cwd = Some(Text::Plain(path.to_owned()));
            self
        }

        /// The user: a name, a number, or `UID:GID`. Default: that of the image, or root.
        pub fn user(mut self, user: &str) -> Self {
            self.asked.user = Some(user.to_owned());
            self
        }

        /// Time after which it is killed with its process group. Time during which the sandbox is
        /// suspended does not count. Default: no limit.
        pub fn timeout(mut self, time: Duration) -> Self {
            self.asked.timeout_secs = Some(time.as_secs_f64());
            self
        }
    };
}

/// A command to run. Await it for its output and exit status, or stream its events.
///
/// After a lost connection, and a restart of the daemon, the command continues and no output is
/// lost, unless the connection broke before the command began. Dropping the future stops following
/// the command, which continues.
///
/// ```no_run
/// # async fn example(sandbox: dorm_client::Sandbox) -> Result<(), dorm_client::ClientError> {
/// let sorted = sandbox.exec(["sort"]).stdin("pear\napple\n").check().await?;
/// assert_eq!(sorted.stdout_text(), "apple\npear\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the command does not run until this is awaited"]
pub struct Exec {
    client: Client,
    sandbox: String,
    asked: ExecRequest,
    input: Option<Bytes>,
}

impl Exec {
    pub(crate) fn new(client: Client, sandbox: String, command: CommandLine) -> Self {
        let (shell, argv) = command.parts();
        Self { client, sandbox, asked: ExecRequest { shell, argv, ..ExecRequest::default() }, input: None }
    }

    settings_of_commands!();

    /// The whole standard input. Default: empty.
    pub fn stdin(mut self, input: impl Into<Bytes>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Takes a snapshot of this kind first, whose id is in the output. If that fails, the command
    /// does not run. Default: none.
    pub const fn checkpoint(mut self, kind: SnapshotKind) -> Self {
        self.asked.checkpoint = Some(kind);
        self
    }

    /// Runs the command and returns its output.
    ///
    /// # Errors
    /// [`ClientError::Command`] if it does not exit with code 0.
    pub async fn check(self) -> Result<Output, ClientError> {
        self.await?.check()
    }

    /// Runs the command and returns its events as they happen.
    pub async fn stream(mut self) -> Result<CommandStream, ClientError> {
        let long = match self.input.take() {
            Some(input) if input.len() > INPUT_MAX => {
                self.asked.stdin_open = true;
                Some(input)
            }
            Some(input) => {
                self.asked.stdin = Some(Text::from_bytes(&input));
                None
            }
            None => None,
        };
        let events = self.client.exec(&self.sandbox, &self.asked).await?;
        Ok(CommandStream::new(self.client, self.sandbox, events, long))
    }
}

impl IntoFuture for Exec {
    type Output = Result<Output, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { self.stream().await?.collect().await }.boxed()
    }
}

/// A process to start in the background. Await it.
#[derive(Clone, Debug)]
#[must_use = "the process does not start until this is awaited"]
pub struct Start {
    client: Client,
    sandbox: String,
    asked: StartProcess,
}

impl Start {
    pub(crate) fn new(client: Client, sandbox: String, command: CommandLine) -> Self {
        let (shell, argv) = command.parts();
        Self { client, sandbox, asked: StartProcess { shell, argv, ..StartProcess::default() } }
    }

    settings_of_commands!();

    /// Gives it an input that can be written to. Default: an empty one.
    pub const fn stdin(mut self) -> Self {
        self.asked.stdin = Stdin::Pipe;
        self
    }

    /// A label to find it by.
    pub fn label(mut self, label: &str) -> Self {
        self.asked.label = Some(label.to_owned());
        self
    }

    /// Runs it in a terminal of this size, which is its input and its only output.
    pub const fn terminal(mut self, rows: u16, cols: u16) -> Self {
        self.asked.terminal = Some(TerminalSize { rows, cols });
        self
    }

    /// How many bytes of each output stream are kept for readers. Default 1 MiB.
    pub const fn keep_output(mut self, bytes: u32) -> Self {
        self.asked.output_kept_bytes = Some(bytes);
        self
    }
}

impl IntoFuture for Start {
    type Output = Result<Process, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let handle = self.client.start(&self.sandbox, &self.asked).await?;
            Ok(Process::new(self.client, self.sandbox, handle))
        }
        .boxed()
    }
}
