//! Queries the host's name servers, one after the other. This module does not know what is queried.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::HEADER;
use crate::config::NameServers;

/// The time limit for all servers together, of which each gets an equal part. Programs usually
/// repeat a query after five seconds: with two servers, the second still answers in time if the
/// first is dead.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
pub(crate) const MESSAGE_MAX: usize = 65_535;

/// How a query arrived, and so how it is forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// Returns the first reply from one of the servers.
pub(crate) async fn ask(question: &[u8], servers: &NameServers, transport: Transport) -> Option<Vec<u8>> {
    if question.len() < HEADER {
        return None;
    }
    let servers = servers.now();
    let limit = ANSWER_LIMIT / u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
    for server in servers {
        let asking = async {
            match transport {
                Transport::Udp => ask_by_datagram(question, server).await,
                Transport::Tcp => ask_by_stream(question, server).await,
            }
        };
        if let Ok(Ok(answer)) = timeout(limit, asking).await {
            return Some(answer);
        }
    }
    None
}

/// A new socket, and so a new port, for each query makes it hard to forge replies.
async fn ask_by_datagram(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
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
        if answers(question, &answer[..length]) {
            answer.truncate(length);
            return Ok(answer);
        }
    }
}

async fn ask_by_stream(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    write_message(&mut stream, question).await?;
    let answer = read_message(&mut stream).await?;
    if answers(question, &answer) { Ok(answer) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn answers(question: &[u8], answer: &[u8]) -> bool {
    answer.len() >= HEADER && answer[..2] == question[..2]
}

/// Reads the next message of a stream, which follows its length.
pub(crate) async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Writes a message after its length.
pub(crate) async fn write_message(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let framed = [&length.to_be_bytes(), message].concat();
    stream.write_all(&framed).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (answer, ()) = tokio::join!(ask(&question, &servers, Transport::Udp), answering);
        assert_eq!(answer.unwrap()[..3], [7, 7, 0x80]);
    }

    #[tokio::test]
    async fn without_a_server_there_is_no_answer() {
        for transport in [Transport::Udp, Transport::Tcp] {
            assert_eq!(ask(&[7; HEADER], &NameServers::Fixed(vec![]), transport).await, None);
        }
    }
}
