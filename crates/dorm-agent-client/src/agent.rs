//! The handle, and the calls that concern the whole sandbox.

use std::sync::Arc;
use std::time::Duration;

use dorm_agent_proto::{Account, Answer, Busy, GuestMount, Identity, Metrics, Request, Resumed, User};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::Channel;
use crate::connection::{Connection, Outgoing};
use crate::dial::DialedStream;
use crate::error::AgentError;

/// A connection to the agent in one sandbox. Clones share it; it ends when the last of them and of
/// their streams is dropped. Processes in the sandbox continue.
///
/// Every call can be cancelled by dropping its future; it is then unknown whether it took effect.
#[derive(Clone, Debug)]
pub struct Agent {
    connection: Arc<Connection>,
}

impl Agent {
    /// Connects to the agent as a new host, and waits for its answer. Calls of an earlier host are
    /// cancelled; processes continue. `generation` is the sandbox's generation as known to the
    /// host.
    ///
    /// # Errors
    /// [`AgentError::Closed`], [`AgentError::Protocol`], [`AgentError::Version`]. There is no time
    /// limit.
    pub async fn connect<T>(stream: T, generation: u64) -> Result<Self, AgentError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Ok(Self { connection: Arc::new(Connection::open(stream, generation).await?) })
    }

    /// Returns the generation of the last [`Agent::resumed`] before this connection; 0 if there was
    /// none.
    pub fn generation_at_connect(&self) -> u64 {
        self.connection.hello().generation
    }

    /// Returns the agent's process ID in the sandbox: 1.
    pub fn pid(&self) -> u32 {
        self.connection.hello().pid
    }

    /// Tells the sandbox its identity for this run, including the first one. Ends a quiet period of
    /// [`Agent::quiesce`]. Returns when the programs in `/etc/dormouse/on-resume.d` have ended,
    /// after at most 10 s.
    ///
    /// # Errors
    /// [`AgentError::Other`] if the generation file cannot be written.
    pub async fn resumed(&self, identity: &Identity) -> Result<Resumed, AgentError> {
        let mut channel = Channel::open(&self.connection, &Request::Resumed(identity.clone()), Outgoing::Continue)?;
        match channel.answer().await? {
            Answer::Resumed(resumed) => Ok(resumed),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Makes the stream quiet: when this returns, no frame is partially sent, and neither side
    /// sends anything until [`Agent::unquiesce`], [`Agent::resumed`] or a new connection. Calls
    /// made in between wait.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn quiesce(&self) -> Result<(), AgentError> {
        let mut channel = Channel::open(&self.connection, &Request::Quiesce, Outgoing::Quiesce)?;
        self.done(&mut channel).await
    }

    /// Ends a quiet period within the same run. Otherwise it is a ping.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn unquiesce(&self) -> Result<(), AgentError> {
        let mut channel = Channel::open(&self.connection, &Request::Ping, Outgoing::Continue)?;
        self.done(&mut channel).await
    }

    /// Pings the agent. Waits during a quiet period.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn ping(&self) -> Result<(), AgentError> {
        self.do_it(&Request::Ping).await
    }

    /// Returns the resource usage of the sandbox, as measured inside.
    ///
    /// # Errors
    /// [`AgentError::Other`] if the sandbox's `/proc` cannot be read.
    pub async fn metrics(&self) -> Result<Metrics, AgentError> {
        let (answer, channel) = self.ask(&Request::Metrics).await?;
        match answer {
            Answer::Metrics(metrics) => Ok(metrics),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Returns the process that uses the most memory, by its ID in the sandbox; never the agent
    /// itself. `None` also if the agent fails to answer.
    pub async fn oom_victim(&self) -> Option<u32> {
        match self.ask(&Request::OomVictim).await {
            Ok((Answer::OomVictim(pid), _)) => pid,
            Ok(_) => None,
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the agent cannot name the process that uses the most memory"
                );
                None
            }
        }
    }

    /// Mounts volumes at these paths and at no others.
    ///
    /// # Errors
    /// [`AgentError::MountBusy`] with [`Busy::Refuse`]; [`AgentError::Other`] for an unusable path.
    pub async fn mount(&self, mounts: Vec<GuestMount>, busy: Busy) -> Result<(), AgentError> {
        self.do_it(&Request::Mount { mounts, busy }).await
    }

    /// Replaces every open deleted file of a volume by a copy on the sandbox's own disk, in every
    /// program.
    ///
    /// # Errors
    /// [`AgentError::Other`], which names the file, if that is not possible; the program then
    /// continues unchanged.
    pub async fn exchange_deleted(&self) -> Result<(), AgentError> {
        self.do_it(&Request::ExchangeDeleted).await
    }

    /// Finds a user in the sandbox's own user list.
    ///
    /// # Errors
    /// [`AgentError::NoUser`].
    pub async fn account(&self, user: &User) -> Result<Account, AgentError> {
        let (answer, channel) = self.ask(&Request::Account { user: user.clone() }).await?;
        match answer {
            Answer::Account(account) => Ok(account),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Connects to a TCP port on the sandbox's loopback, IPv4 first. Needs no network.
    ///
    /// # Errors
    /// [`AgentError::Refused`] if no process listens there.
    pub async fn dial(&self, port: u16) -> Result<DialedStream, AgentError> {
        Ok(DialedStream::new(self.follow(&Request::Dial { port }).await?))
    }

    /// Returns whether anything has arrived from the agent within the last `time`.
    pub fn was_heard_within(&self, time: Duration) -> bool {
        self.connection.heard().elapsed() <= time
    }

    /// Returns whether both are handles to the same connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.connection, &other.connection)
    }

    /// Resolves when the connection has ended.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Returns whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Ends the connection for all handles: their calls and streams end with
    /// [`AgentError::Closed`].
    pub fn close(&self) {
        self.connection.close();
    }

    /// Opens a channel.
    pub(crate) fn open(&self, request: &Request) -> Result<Channel, AgentError> {
        Channel::open(&self.connection, request, Outgoing::Frames)
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn ask(&self, request: &Request) -> Result<(Answer, Channel), AgentError> {
        let mut channel = self.open(request)?;
        Ok((channel.answer().await?, channel))
    }

    /// Sends a request that is answered without a value.
    pub(crate) async fn do_it(&self, request: &Request) -> Result<(), AgentError> {
        let mut channel = self.open(request)?;
        self.done(&mut channel).await
    }

    /// Sends a request that is answered with a stream.
    pub(crate) async fn follow(&self, request: &Request) -> Result<Channel, AgentError> {
        match self.ask(request).await? {
            (Answer::Follows, channel) => Ok(channel),
            (other, channel) => Err(wrong(&channel, &other)),
        }
    }

    async fn done(&self, channel: &mut Channel) -> Result<(), AgentError> {
        match channel.answer().await? {
            Answer::Done => Ok(()),
            other => Err(wrong(channel, &other)),
        }
    }
}

/// Returns the error for an answer that does not fit the request.
pub(crate) fn wrong(channel: &Channel, answer: &Answer) -> AgentError {
    channel.unexpected(&format!("an unexpected answer {answer:?}"))
}
