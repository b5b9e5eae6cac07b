//! A sandbox: its life, copies of it, and what is inside.

mod copies;

use std::time::Duration;

use crate::client::{Client, ClientError};
use crate::command::{CommandLine, Exec, Start};
use crate::events::EventStream;
use crate::files::Files;
use crate::port::Port;
use crate::process::Process;
use crate::terminal::OpenTerminal;
use crate::types;

pub use copies::{Cloned, Rewound};

/// A sandbox of a daemon, by its id.
///
/// It is a name, not the sandbox itself: dropping it changes nothing. Methods that need a running
/// sandbox fail with `conflict` if it is suspended, unless its `wake` policy is `any` or they are
/// called on [`Sandbox::waking`].
#[derive(Clone, Debug)]
pub struct Sandbox {
    client: Client,
    id: String,
}

impl Sandbox {
    pub(crate) const fn new(client: Client, id: String) -> Self {
        Self { client, id }
    }

    /// Returns its id, which never changes and is never used again.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the client, whose methods take the id.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the same sandbox, which commands, terminals and file calls resume first if it is
    /// suspended.
    #[must_use]
    pub fn waking(&self) -> Self {
        Self { client: self.client.waking(), id: self.id.clone() }
    }

    /// Returns its state and its settings.
    pub async fn info(&self) -> Result<types::Sandbox, ClientError> {
        self.client.describe(&self.id).await
    }

    /// Returns its state.
    pub async fn state(&self) -> Result<types::State, ClientError> {
        Ok(self.info().await?.state)
    }

    /// Explains its state.
    pub async fn why(&self) -> Result<types::Why, ClientError> {
        self.client.why(&self.id).await
    }

    /// Returns what it uses now.
    pub async fn usage(&self) -> Result<types::Usage, ClientError> {
        self.client.usage(&self.id).await
    }

    /// Runs a command: a line for `/bin/sh`, or an array with a program and its arguments. Await
    /// the result for its output and exit status, or [stream](Exec::stream) its events.
    pub fn exec(&self, command: impl Into<CommandLine>) -> Exec {
        Exec::new(self.client.clone(), self.id.clone(), command.into())
    }

    /// Starts a process in the background. Await the result. The process continues when this
    /// program ends, when the daemon restarts, and across a suspend and a resume.
    pub fn start(&self, command: impl Into<CommandLine>) -> Start {
        Start::new(self.client.clone(), self.id.clone(), command.into())
    }

    /// Returns the process with this handle. Sends no request.
    pub fn process(&self, handle: u64) -> Process {
        Process::new(self.client.clone(), self.id.clone(), handle)
    }

    /// Returns its processes that were started through the API, oldest first, with a label if it is
    /// given. About 4,000 ended ones are remembered.
    pub async fn processes(&self, label: Option<&str>) -> Result<Vec<types::Process>, ClientError> {
        self.client.processes(&self.id, label).await
    }

    /// Returns its files.
    pub fn files(&self) -> Files {
        Files::new(self.client.clone(), self.id.clone())
    }

    /// Opens a terminal. Call [`OpenTerminal::open`].
    pub fn terminal(&self) -> OpenTerminal {
        OpenTerminal::new(self.client.clone(), self.id.clone())
    }

    /// Returns one of its ports. Sends no request, and a program need not listen on it yet.
    pub fn port(&self, port: u16) -> Port {
        Port::new(self.client.clone(), self.id.clone(), port)
    }

    /// Suspends it with its memory and processes, which are on disk and verified when this returns.
    /// One that is suspended is not changed.
    ///
    /// # Errors
    /// `conflict` if it cannot be suspended, such as one without a name.
    pub async fn suspend(&self) -> Result<types::Sandbox, ClientError> {
        self.suspend_with(types::SuspendRequest::default()).await
    }

    /// Suspends it in another way, such as with its files only.
    pub async fn suspend_with(&self, asked: types::SuspendRequest) -> Result<types::Sandbox, ClientError> {
        self.client.suspend(&self.id, asked).await
    }

    /// Resumes it: its processes continue where they were. One that runs is not changed.
    pub async fn resume(&self) -> Result<types::Sandbox, ClientError> {
        self.resume_with(&types::ResumeRequest::default()).await
    }

    /// Resumes it in another way, such as with another deadline.
    pub async fn resume_with(&self, asked: &types::ResumeRequest) -> Result<types::Sandbox, ClientError> {
        self.client.resume(&self.id, asked).await
    }

    /// Releases its memory on the host, if it is suspended. It is then resumed from disk.
    pub async fn evict(&self) -> Result<types::Sandbox, ClientError> {
        self.client.evict(&self.id).await
    }

    /// Terminates it. Its snapshots are kept. One that is terminated is not changed.
    pub async fn terminate(&self) -> Result<types::Sandbox, ClientError> {
        self.client.terminate(&self.id, types::CommandRequest::default()).await
    }

    /// Changes its properties, all of them or none.
    pub async fn update(&self, asked: &types::UpdateSandbox) -> Result<types::Sandbox, ClientError> {
        self.client.update(&self.id, asked).await
    }

    /// Postpones the deadline that its time limit sets: it is not before this time from now.
    pub async fn extend(&self, time: Duration) -> Result<types::Sandbox, ClientError> {
        self.client.extend(&self.id, &types::ExtendSandbox { timeout_secs: time.as_secs_f64() }).await
    }

    /// Changes where it may connect to, at once if it runs.
    pub async fn set_egress(&self, egress: types::Egress) -> Result<types::Sandbox, ClientError> {
        self.client.set_egress(&self.id, &types::SetEgress { egress }).await
    }

    /// Keeps it awake for a time. `reason` is shown in explanations of its state.
    pub async fn hold(&self, time: Duration, reason: &str) -> Result<types::Hold, ClientError> {
        let asked = types::HoldRequest { ttl_secs: time.as_secs_f64(), reason: reason.to_owned(), renew: None };
        self.client.hold(&self.id, &asked).await
    }

    /// Releases a hold, by its id.
    pub async fn release(&self, hold: &str) -> Result<types::Sandbox, ClientError> {
        self.client.release(&self.id, hold).await
    }

    /// Attaches a volume, by its id or name, at a path. Its files are there when this returns.
    pub async fn attach(&self, volume: &str, path: &str) -> Result<types::Sandbox, ClientError> {
        let (volume, path) = (volume.to_owned(), path.to_owned());
        self.client.attach(&self.id, &types::AttachVolume { volume, path, read_only: false, subpath: None }).await
    }

    /// Detaches the volume at a path.
    pub async fn detach(&self, path: &str) -> Result<types::Sandbox, ClientError> {
        self.client.detach(&self.id, path).await
    }

    /// Returns its events that are kept, oldest first.
    pub async fn events(&self) -> Result<Vec<types::Event>, ClientError> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = self.client.events(Some(&self.id), after, None).await?;
            if page.events.is_empty() {
                return Ok(all);
            }
            all.extend(page.events);
            after = page.next;
        }
    }

    /// Follows its events after the one with this number; 0 begins with the oldest that is kept.
    pub async fn follow_events(&self, after: u64) -> Result<EventStream, ClientError> {
        EventStream::open(self.client.clone(), Some(self.id.clone()), after).await
    }
}
