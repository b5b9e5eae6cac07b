//! Gets the sandbox of an environment.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::client::{Client, ClientError, Reconnects, Sse};
use crate::sandbox::Sandbox;
use crate::types::{self, Considered, EnsureRequest, Environment, EnvironmentLogLine};

/// A request for the sandbox of an environment. Await it, or follow its events.
///
/// It may take as long as the setup. If the connection is lost meanwhile, as when the daemon
/// restarts, the request is sent again, and joins the work in progress. Dropping the future leaves
/// the work to the daemon, or cancels it if `on_leave` is `cancel` and no other caller waits for
/// it.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked for until this is awaited"]
pub struct Ensure {
    client: Client,
    asked: EnsureRequest,
}

impl Ensure {
    pub(crate) fn new(client: Client, asked: EnsureRequest) -> Self {
        Self { client: client.with_own_idempotency_key(), asked }
    }

    /// Takes a lease for this time, at most 24 hours. When the last lease is released or expires,
    /// `lifecycle` says what follows. Default: no lease.
    pub fn lease(mut self, time: Duration) -> Self {
        self.asked.lease_secs = Some(time.as_secs_f64());
        self
    }

    /// A key by which another attempt, also of another program, gets what this one has got.
    /// Default: a random key.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.client = self.client.with_idempotency_key(key);
        self
    }

    /// Sends the request and returns the events of the work.
    pub async fn events(self) -> Result<EnsureEvents, ClientError> {
        let reconnects = Reconnects::new(self.client.retries());
        let mut events = EnsureEvents {
            client: self.client,
            asked: self.asked,
            source: None,
            attempt: None,
            lines: 0,
            reconnects,
            is_over: false,
        };
        events.open().await?;
        Ok(events)
    }
}

impl IntoFuture for Ensure {
    type Output = Result<Ensured, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { self.events().await?.finish().await }.boxed()
    }
}

/// The sandbox of an environment, which runs.
#[derive(Clone, Debug)]
pub struct Ensured {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// How it was had: the way, the ways that were considered, what was lost, and the lease.
    pub info: types::Ensured,
}

/// An event of a request for an environment.
#[derive(Clone, Debug)]
pub enum EnsureEvent {
    /// The ways that are considered.
    Considered(Vec<Considered>),
    /// The environment, as the work advances.
    Attempt(Box<Environment>),
    /// A line of its log.
    Line(EnvironmentLogLine),
    /// The sandbox runs. This is the last event.
    Ensured(Box<Ensured>),
}

/// The events of a request for an environment. Lines are not repeated after a lost connection.
pub struct EnsureEvents {
    client: Client,
    asked: EnsureRequest,
    source: Option<Sse>,
    /// The attempt that the lines are of. Each has a log of its own.
    attempt: Option<String>,
    /// How many lines of it were delivered.
    lines: u64,
    reconnects: Reconnects,
    is_over: bool,
}

impl EnsureEvents {
    /// Returns the next event, or none after [`EnsureEvent::Ensured`].
    pub async fn next(&mut self) -> Result<Option<EnsureEvent>, ClientError> {
        while !self.is_over {
            let Some(source) = &mut self.source else {
                self.open().await?;
                continue;
            };
            let error = match source.next().await {
                Ok(Some(event)) => match self.event(&event)? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                },
                Ok(None) => source.ended(),
                Err(error) => error,
            };
            self.source = None;
            self.reconnects.pause(error).await?;
        }
        Ok(None)
    }

    /// Waits until the sandbox runs.
    pub async fn finish(mut self) -> Result<Ensured, ClientError> {
        loop {
            match self.next().await? {
                Some(EnsureEvent::Ensured(ensured)) => return Ok(*ensured),
                Some(_) => {}
                None => return Err(self.ended()),
            }
        }
    }

    /// Returns the error for a stream that ended too early.
    pub fn ended(&self) -> ClientError {
        ClientError::Ended { server: self.client.server().to_owned() }
    }

    /// Sends the request, until the daemon begins to answer.
    async fn open(&mut self) -> Result<(), ClientError> {
        loop {
            match self.client.ensure(&self.asked).await {
                Ok(source) => {
                    self.source = Some(source);
                    return Ok(());
                }
                Err(error) => self.reconnects.pause(error).await?,
            }
        }
    }

    fn event(&mut self, event: &crate::client::SseEvent) -> Result<Option<EnsureEvent>, ClientError> {
        let Some(source) = &self.source else { return Ok(None) };
        let event = match event.kind.as_str() {
            "considered" => EnsureEvent::Considered(source.parse(event)?),
            "attempt" => {
                let environment: Environment = source.parse(event)?;
                let attempt = environment.attempt.as_ref().map(|attempt| attempt.id.clone());
                if attempt != self.attempt {
                    (self.attempt, self.lines) = (attempt, 0);
                    self.reconnects.delivered();
                }
                EnsureEvent::Attempt(Box::new(environment))
            }
            "line" => {
                let line: EnvironmentLogLine = source.parse(event)?;
                if line.offset < self.lines {
                    return Ok(None);
                }
                self.lines = line.offset + 1;
                self.reconnects.delivered();
                EnsureEvent::Line(line)
            }
            "ensured" => {
                self.is_over = true;
                let info: types::Ensured = source.parse(event)?;
                let sandbox = Sandbox::new(self.client.without_idempotency_key(), info.sandbox.id.clone());
                EnsureEvent::Ensured(Box::new(Ensured { sandbox, info }))
            }
            _ => return Ok(None),
        };
        Ok(Some(event))
    }
}
