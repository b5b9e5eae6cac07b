//! The handle, and the calls about the sandbox as a whole.

use std::sync::Arc;
use std::time::Duration;

use dorm_agent_proto::{Account, Answer, Busy, GuestMount, Identity, Metrics, Request, Resumed, User};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::Channel;
use crate::connection::{Connection, Outgoing};
use crate::dial::DialedStream;
use crate::error::AgentError;

/// A connection to the agent inside one sandbox. Clones share it; it ends with the last of them and of the streams
/// that came from it. What runs inside goes on.
///
/// Every call may be given up by dropping its future; whether it took effect is then not known.
#[derive(Clone, Debug)]
pub struct Agent {
    connection: Arc<Connection>,
}

impl Agent {
    /// Says to the agent that a new host is here and waits for its answer; calls of the host before are given up,
    /// processes live on. `generation` is what the host believes the sandbox's generation to be.
    ///
    /// # Errors
    /// [`AgentError::Closed`], [`AgentError::Protocol`], [`AgentError::Version`]. There is no time limit.
    pub async fn connect<T>(stream: T, generation: u64) -> Result<Self, AgentError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Ok(Self { connection: Arc::new(Connection::open(stream, generation).await?) })
    }

    /// The generation that the agent was last told by [`Agent::resumed`] when this connection began; 0 before the
    /// first.
    pub fn generation_at_connect(&self) -> u64 {
        self.connection.hello().generation
    }

    /// The agent's process id inside: 1 in a sandbox.
    pub fn pid(&self) -> u32 {
        self.connection.hello().pid
    }

    /// Gives the sandbox its identity for this run; also after its first start. Ends a quiet begun by
    /// [`Agent::quiesce`]. Returns when the programs in `/etc/dormouse/on-resume.d` have ended, after 10 s at most.
    ///
    /// # Errors
    /// [`AgentError::Other`] when the generation file cannot be written.
    pub async fn resumed(&self, identity: &Identity) -> Result<Resumed, AgentError> {
        let mut channel = Channel::open(&self.connection, &Request::Resumed(identity.clone()), Outgoing::Continue)?;
        match channel.answer().await? {
            Answer::Resumed(resumed) => Ok(resumed),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// Makes the stream quiet: when this returns, no frame is cut and neither side sends anything, until
    /// [`Agent::go_on`], [`Agent::resumed`] or a new connection. Calls made in between wait for that.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn quiesce(&self) -> Result<(), AgentError> {
        let mut channel = Channel::open(&self.connection, &Request::Quiesce, Outgoing::Quiesce)?;
        self.done(&mut channel).await
    }

    /// Ends a quiet, in the same run. Otherwise asks the agent for a sign of life.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn go_on(&self) -> Result<(), AgentError> {
        let mut channel = Channel::open(&self.connection, &Request::Ping, Outgoing::Continue)?;
        self.done(&mut channel).await
    }

    /// Asks the agent for a sign of life. Waits while it is quiet.
    ///
    /// # Errors
    /// [`AgentError::Closed`].
    pub async fn ping(&self) -> Result<(), AgentError> {
        self.do_it(&Request::Ping).await
    }

    /// What the sandbox uses, as it sees it itself.
    ///
    /// # Errors
    /// [`AgentError::Other`] when the sandbox's `/proc` cannot be read.
    pub async fn metrics(&self) -> Result<Metrics, AgentError> {
        let (answer, channel) = self.ask(&Request::Metrics).await?;
        match answer {
            Answer::Metrics(metrics) => Ok(metrics),
            other => Err(wrong(&channel, &other)),
        }
    }

    /// The process with the most memory, as its id inside; never the agent itself. `None` also when it cannot be told.
    pub async fn greediest(&self) -> Option<u32> {
        match self.ask(&Request::Greediest).await {
            Ok((Answer::Greediest(pid), _)) => pid,
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

    /// Makes volumes appear at these paths and at no others.
    ///
    /// # Errors
    /// [`AgentError::MountBusy`] with [`Busy::Refuse`]; [`AgentError::Other`] for a path that cannot be.
    pub async fn mount(&self, mounts: Vec<GuestMount>, busy: Busy) -> Result<(), AgentError> {
        self.do_it(&Request::Mount { mounts, busy }).await
    }

    /// Gives every program that has a deleted file of a volume open a copy of it on the sandbox's own disk.
    ///
    /// # Errors
    /// [`AgentError::Other`], which names the file, where that cannot be; the program goes on as it was.
    pub async fn exchange_deleted(&self) -> Result<(), AgentError> {
        self.do_it(&Request::ExchangeDeleted).await
    }

    /// Looks a user up in the sandbox's own user list.
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
    /// [`AgentError::Refused`] when nobody listens there.
    pub async fn dial(&self, port: u16) -> Result<DialedStream, AgentError> {
        Ok(DialedStream::new(self.follow(&Request::Dial { port }).await?))
    }

    /// Whether anything has come from the agent in the last `time`.
    pub fn was_heard_within(&self, time: Duration) -> bool {
        self.connection.heard().elapsed() <= time
    }

    /// Whether both are handles to one connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.connection, &other.connection)
    }

    /// Resolves when the connection has ended.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Whether the stream has ended.
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Ends the connection for every holder of a handle: their calls and streams end with [`AgentError::Closed`].
    pub fn close(&self) {
        self.connection.close();
    }

    /// Opens a channel.
    pub(crate) fn open(&self, request: &Request) -> Result<Channel, AgentError> {
        Channel::open(&self.connection, request, Outgoing::Frames)
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask(&self, request: &Request) -> Result<(Answer, Channel), AgentError> {
        let mut channel = self.open(request)?;
        Ok((channel.answer().await?, channel))
    }

    /// Asks for something that is answered without a value.
    pub(crate) async fn do_it(&self, request: &Request) -> Result<(), AgentError> {
        let mut channel = self.open(request)?;
        self.done(&mut channel).await
    }

    /// Asks for a stream.
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

/// The agent answered something else than was asked.
pub(crate) fn wrong(channel: &Channel, answer: &Answer) -> AgentError {
    channel.unexpected(&format!("an unexpected answer {answer:?}"))
}
