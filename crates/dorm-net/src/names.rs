//! Look-ups of names: takes the questions of one sandbox in its gateway and passes them to the host's name servers, as
//! they are. So a server on the host's loopback, in its private network or reached by IPv6 serves sandboxes that
//! reach none of these.
//!
//! Knows nothing of what is asked. A question that nobody answers gets "server failure", never silence.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::config::NameServers;
use crate::layout::GATEWAY;
use crate::ruleset::NAME_PORT;

/// Questions of one sandbox that may be on their way at once.
const IN_FLIGHT_MAX: usize = 128;
/// How long all servers together may take, each an equal part. Programs ask again after five seconds, as a rule: with
/// two servers, the second still answers in time when the first is dead.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// How long a connection may live.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
const MESSAGE_MAX: usize = 65_535;
const HEADER: usize = 12;

/// Where one sandbox's questions arrive: port 53 of its gateway, over UDP and TCP.
#[derive(Debug)]
pub(crate) struct NameSockets {
    datagrams: std::net::UdpSocket,
    connections: std::net::TcpListener,
}

impl NameSockets {
    /// Opens them in the namespace of the calling thread.
    pub(crate) fn bind() -> io::Result<Self> {
        let datagrams = std::net::UdpSocket::bind((GATEWAY, NAME_PORT))?;
        let connections = std::net::TcpListener::bind((GATEWAY, NAME_PORT))?;
        datagrams.set_nonblocking(true)?;
        connections.set_nonblocking(true)?;
        Ok(Self { datagrams, connections })
    }
}

/// Answers the questions of one sandbox until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Forwarder {
    task: JoinHandle<()>,
}

impl Forwarder {
    /// Starts it on the current runtime.
    pub(crate) fn start(sockets: NameSockets, servers: NameServers) -> io::Result<Self> {
        let datagrams = UdpSocket::from_std(sockets.datagrams)?;
        let connections = TcpListener::from_std(sockets.connections)?;
        Ok(Self { task: tokio::spawn(serve(Arc::new(datagrams), connections, Arc::new(servers))) })
    }

    /// Ends it; when this returns its sockets are closed.
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

async fn serve(datagrams: Arc<UdpSocket>, connections: TcpListener, servers: Arc<NameServers>) {
    let places = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
    // Dropped with this task, and everything in it ends.
    let mut running = JoinSet::new();
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        tokio::select! {
            received = datagrams.recv_from(&mut buffer) => match received {
                Ok((length, from)) => {
                    let question = buffer[..length].to_vec();
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                        let _ = datagrams.try_send_to(&failure(&question), from);
                        continue;
                    };
                    let (datagrams, servers) = (Arc::clone(&datagrams), Arc::clone(&servers));
                    running.spawn(async move {
                        let answer = ask(&question, &servers).await.unwrap_or_else(|| failure(&question));
                        let _ = datagrams.send_to(&answer, from).await;
                        drop(place);
                    });
                }
                Err(error) => wait_a_little(&error).await,
            },
            accepted = connections.accept() => match accepted {
                Ok((client, _)) => {
                    // Without a place the connection is closed, which a resolver takes for a failure.
                    if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                        let servers = Arc::clone(&servers);
                        running.spawn(async move {
                            let _ = timeout(CONNECTION_LIMIT, relay(client, &servers)).await;
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

/// An error such as "too many open files" would otherwise come back at once, for ever.
async fn wait_a_little(error: &io::Error) {
    tracing::debug!(%error, "cannot take a question for a name");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// The servers to ask, and how long each may take.
fn in_turn(servers: &NameServers) -> (Vec<SocketAddr>, Duration) {
    let servers = servers.now();
    let parts = u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
    (servers, ANSWER_LIMIT / parts)
}

/// The first answer that one of the servers gives.
async fn ask(question: &[u8], servers: &NameServers) -> Option<Vec<u8>> {
    if question.len() < HEADER {
        return None;
    }
    let (servers, limit) = in_turn(servers);
    for server in servers {
        if let Ok(Ok(answer)) = timeout(limit, ask_one(question, server)).await {
            return Some(answer);
        }
    }
    None
}

/// A new socket, and so a new port, for each question makes forged answers hard.
async fn ask_one(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; MESSAGE_MAX];
    loop {
        let length = socket.recv(&mut answer).await?;
        if length >= HEADER && answer[..2] == question[..2] {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn relay(mut client: TcpStream, servers: &NameServers) -> io::Result<()> {
    let (servers, limit) = in_turn(servers);
    for server in servers {
        if let Ok(Ok(mut upstream)) = timeout(limit, TcpStream::connect(server)).await {
            tokio::io::copy_bidirectional(&mut client, &mut upstream).await?;
            return Ok(());
        }
    }
    Ok(())
}

/// The question, marked as answered with "server failure".
fn failure(question: &[u8]) -> Vec<u8> {
    const RESPONSE: u8 = 0x80;
    const RECURSION_AVAILABLE: u8 = 0x80;
    const SERVER_FAILURE: u8 = 2;
    let mut answer = question.to_vec();
    if let Some(flags) = answer.get_mut(2..4) {
        flags[0] |= RESPONSE;
        flags[1] = RECURSION_AVAILABLE | SERVER_FAILURE;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_the_question() {
        let question = [0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'x', 0, 0, 1, 0, 1];
        let answer = failure(&question);
        assert_eq!(answer[..4], [0xab, 0xcd, 0x81, 0x82]);
        assert_eq!(answer[4..], question[4..]);
        assert_eq!(failure(&[1]), [1]);
    }

    #[tokio::test]
    async fn the_next_server_is_asked_when_one_refuses() {
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let servers = NameServers::Fixed(vec![closed, server.local_addr().unwrap()]);
        let question = [7; HEADER];
        let answering = async {
            let mut buffer = [0; 64];
            let (length, from) = server.recv_from(&mut buffer).await.unwrap();
            server.send_to(b"another message", from).await.unwrap();
            buffer[2] = 0x80;
            server.send_to(&buffer[..length], from).await.unwrap();
        };
        let (answer, ()) = tokio::join!(ask(&question, &servers), answering);
        assert_eq!(answer.unwrap()[..3], [7, 7, 0x80]);
    }

    #[tokio::test]
    async fn without_a_server_there_is_no_answer() {
        assert_eq!(ask(&[7; HEADER], &NameServers::Fixed(vec![])).await, None);
    }
}
