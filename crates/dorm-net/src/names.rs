//! DNS: receives the queries of one sandbox in its gateway, forwards those that its egress permits
//! to the host's name servers, and permits the addresses in the replies.
//!
//! ```text
//! question ── no rule for names, by default public ──────── asked as it is ──────────────── answer
//!          ├─ an allowed name ── written anew ──────────── asked ── addresses permitted ── answer
//!          ├─ by default public ── written anew ────────── asked ───────────────────────── answer
//!          └─ any other ─────────────────────────────────────────────────────────────────── "refused"
//! ```
//!
//! A name server on the host's loopback, in its private network or reached by IPv6 also serves
//! sandboxes that cannot reach it themselves. Every query gets a reply: if no server answers, the
//! reply is "server failure", never silence.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod learner;
mod message;
mod places;
mod upstream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use self::learner::Rules;
use self::message::Refusal;
use self::places::{Places, SHARED_MAX};
use self::upstream::{MESSAGE_MAX, read_message, write_message};
use crate::config::NameServers;
use crate::name_sockets::NameSockets;
use crate::policy::{Decision, Policy};

pub(crate) use self::learner::Learner;
pub(crate) use self::message::Question;
pub(crate) use self::upstream::{Transport, ask};

/// The maximum lifetime of a connection.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// How long a connection may be idle.
const IDLE_LIMIT: Duration = Duration::from_secs(5);
/// How many commands that permit addresses may run at once, for all sandboxes together.
const COMMANDS_MAX: usize = 2;

/// The limits that the queries of all sandboxes share.
#[derive(Debug)]
pub(crate) struct SharedPlaces {
    descriptors: Arc<Semaphore>,
    pub(crate) commands: Arc<Semaphore>,
}

impl Default for SharedPlaces {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { descriptors: places(SHARED_MAX), commands: places(COMMANDS_MAX) }
    }
}

/// Answers the queries of one sandbox until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    task: JoinHandle<()>,
    rules: Arc<RwLock<Arc<Rules>>>,
}

/// The lock on the rules for one sandbox's names while its egress changes. Queries wait meanwhile.
pub(crate) struct Changing(OwnedRwLockWriteGuard<Arc<Rules>>);

impl Changing {
    /// Puts the new policy into effect.
    pub(crate) fn done(mut self, policy: Policy) {
        *self.0 = Rules::new(policy);
    }
}

impl Forwarder {
    /// Starts the forwarder on the current runtime.
    pub(crate) fn start(
        sockets: NameSockets,
        servers: NameServers,
        policy: Policy,
        learner: Learner,
        shared: &SharedPlaces,
    ) -> io::Result<Self> {
        let datagrams = Arc::new(UdpSocket::from_std(sockets.datagrams)?);
        let connections = TcpListener::from_std(sockets.connections)?;
        let rules = Arc::new(RwLock::new(Rules::new(policy)));
        let resolver = Arc::new(Resolver { servers, rules: Arc::clone(&rules), learner });
        let places = Places::new(&shared.descriptors);
        Ok(Self { task: tokio::spawn(serve(datagrams, connections, resolver, places)), rules })
    }

    /// Waits until no query is being answered by the present rules.
    pub(crate) fn change(&self) -> impl Future<Output = Changing> + use<> {
        let rules = Arc::clone(&self.rules);
        async move { Changing(rules.write_owned().await) }
    }

    /// Stops the forwarder; its sockets are closed when this returns.
    pub(crate) async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(datagrams: Arc<UdpSocket>, connections: TcpListener, resolver: Arc<Resolver>, places: Places) {
    // Dropped with this task, which ends everything in it.
    let mut running = JoinSet::new();
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        tokio::select! {
            received = datagrams.recv_from(&mut buffer) => match received {
                Ok((length, from)) => {
                    let question = buffer[..length].to_vec();
                    let Some(place) = places.question() else {
                        let _ = datagrams.try_send_to(&Refusal::Failed.answer(&question), from);
                        continue;
                    };
                    let (datagrams, resolver) = (Arc::clone(&datagrams), Arc::clone(&resolver));
                    running.spawn(async move {
                        let answer = resolver.answer(&question, Transport::Udp).await;
                        let _ = datagrams.send_to(&answer, from).await;
                        drop(place);
                    });
                }
                Err(error) => wait_a_little(&error).await,
            },
            accepted = connections.accept() => match accepted {
                Ok((client, _)) => {
                    // Without a place the connection is closed, which resolvers treat as a failure.
                    if let Some(place) = places.connection() {
                        let resolver = Arc::clone(&resolver);
                        running.spawn(async move {
                            let _ = timeout(CONNECTION_LIMIT, resolver.converse(client)).await;
                            drop(place);
                        });
                    }
                }
                Err(error) => wait_a_little(&error).await,
            },
            Some(_) = running.join_next(), if !running.is_empty() => {}
        }
    }
}

/// Waits a moment: an error such as "too many open files" would otherwise repeat in a busy loop.
async fn wait_a_little(error: &io::Error) {
    tracing::debug!(%error, "cannot receive a DNS query");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Answers the queries of one sandbox.
#[derive(Debug)]
struct Resolver {
    servers: NameServers,
    rules: Arc<RwLock<Arc<Rules>>>,
    learner: Learner,
}

impl Resolver {
    /// Answers the queries of a connection, one after the other.
    async fn converse(&self, mut client: TcpStream) -> io::Result<()> {
        loop {
            let question = timeout(IDLE_LIMIT, read_message(&mut client)).await??;
            let answer = self.answer(&question, Transport::Tcp).await;
            write_message(&mut client, &answer).await?;
        }
    }

    /// Returns the reply to any query.
    async fn answer(&self, question: &[u8], transport: Transport) -> Vec<u8> {
        let rules = Arc::clone(&*self.rules.read().await);
        let answered = match rules.policy.decision_for_all() {
            Some(Decision::Refuse) => Err(Refusal::Refused),
            Some(Decision::Answer) => ask(question, &self.servers, transport).await.ok_or(Refusal::Failed),
            Some(Decision::Learn(_)) | None => self.filtered(question, transport, &rules).await,
        };
        answered.unwrap_or_else(|refusal| refusal.answer(question))
    }

    /// Returns the reply to a query that the rules for names decide about.
    async fn filtered(&self, bytes: &[u8], transport: Transport, rules: &Arc<Rules>) -> Result<Vec<u8>, Refusal> {
        let question = Question::read(bytes)?;
        let group = match rules.policy.decide(|pattern| question.is_permitted(pattern)) {
            Decision::Refuse => return Err(Refusal::Refused),
            Decision::Learn(group) => Some(group),
            Decision::Answer => None,
        };
        let asked = question.rewritten()?;
        let answer = ask(&asked, &self.servers, transport).await.ok_or(Refusal::Failed)?;
        let answer = question.answered(&answer)?;
        if let Some(group) = group
            && !answer.addresses.is_empty()
        {
            let now = Arc::clone(&self.rules).read_owned().await;
            if !Arc::ptr_eq(&now, rules) {
                return Err(Refusal::Refused);
            }
            self.learner.learn(now, group, &answer.addresses).await.map_err(|error| {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot permit the addresses of a name");
                Refusal::Failed
            })?;
        }
        Ok(answer.bytes)
    }
}
