//! A name server on the host's loopback, where no sandbox could reach it, that records its queries.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use dorm_net::{HostNetwork, NameServers};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::support::{Host, PRIVATE, PUBLIC, PUBLIC_TOO, ask, connect, datagrams};

/// The names that it was asked for.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// The records of the test's internet.
fn records(name: &str) -> Vec<Record> {
    let a = |owner: &str, address: Ipv4Addr| Record::from_rdata(parsed(owner), 1, RData::A(A(address)));
    let alias = |owner: &str, target: &str| Record::from_rdata(parsed(owner), 1, RData::CNAME(CNAME(parsed(target))));
    match name {
        "one.test." => vec![a(name, PUBLIC)],
        "two.test." | "a.b.wild.test." => vec![a(name, PUBLIC_TOO)],
        "alias.test." => vec![alias(name, "cdn.elsewhere."), a("cdn.elsewhere.", PUBLIC), a("other.test.", PUBLIC_TOO)],
        "rebind.test." => vec![a(name, PRIVATE[0]), a(name, PRIVATE[1]), a(name, [169, 254, 169, 254].into())],
        _ => vec![],
    }
}

fn parsed(name: &str) -> Name {
    Name::from_ascii(name).unwrap()
}

fn answer(asked: &Asked, question: &[u8]) -> Vec<u8> {
    let question = Message::from_vec(question).unwrap();
    let name = question.queries[0].name.to_ascii();
    asked.0.lock().unwrap().push(name.clone());
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.add_query(question.queries[0].clone());
    let found = records(&name);
    message.metadata.response_code = if found.is_empty() { ResponseCode::NXDomain } else { ResponseCode::NoError };
    message.add_answers(found.into_iter().filter(|_| question.queries[0].query_type == RecordType::A));
    message.to_vec().unwrap()
}

/// Starts the server, over UDP and TCP.
pub(crate) async fn start() -> (SocketAddr, Asked) {
    let asked = Asked::default();
    let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = datagrams.local_addr().unwrap();
    let connections = TcpListener::bind(address).await.unwrap();
    let by_datagram = asked.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, from)) = datagrams.recv_from(&mut buffer).await {
            datagrams.send_to(&answer(&by_datagram, &buffer[..length]), from).await.unwrap();
        }
    });
    let by_stream = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = connections.accept().await {
            let asked = by_stream.clone();
            tokio::spawn(async move {
                while let Ok(question) = read(&mut stream).await {
                    write(&mut stream, &answer(&asked, &question)).await.unwrap();
                }
            });
        }
    });
    (address, asked)
}

/// Opens a network that uses the server.
pub(crate) async fn open(host: &Host, servers: Vec<SocketAddr>) -> HostNetwork {
    let mut config = host.config("a");
    config.dns = NameServers::Fixed(servers);
    HostNetwork::open(config).await.unwrap()
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write(stream: &mut TcpStream, message: &[u8]) -> std::io::Result<()> {
    stream.write_all(&[&u16::try_from(message.len()).unwrap().to_be_bytes(), message].concat()).await
}

/// A query as programs write it.
pub(crate) fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(parsed(name), kind));
    message.to_vec().unwrap()
}

/// The result of a look-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Addresses(Vec<Ipv4Addr>),
    Refused,
    Failed,
    NoName,
}

fn found(answer: &[u8]) -> Found {
    let answer = Message::from_vec(answer).unwrap();
    assert_eq!((answer.metadata.id, answer.metadata.message_type), (0x1234, MessageType::Response));
    let addresses = answer.answers.iter().filter_map(|record| match &record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    });
    match answer.metadata.response_code {
        ResponseCode::NoError => Found::Addresses(addresses.collect()),
        ResponseCode::Refused => Found::Refused,
        ResponseCode::NXDomain => Found::NoName,
        _ => Found::Failed,
    }
}

/// Looks up a name over UDP.
pub(crate) async fn look_up(namespace: &Path, server: Ipv4Addr, name: &str) -> Found {
    found(&ask(&datagrams(namespace, server, 53), &question(name, RecordType::A)).await.unwrap())
}

/// Looks up names over one TCP connection.
pub(crate) async fn look_up_by_stream(namespace: &Path, server: Ipv4Addr, names: &[&str]) -> Vec<Found> {
    let mut stream = connect(namespace, server, 53).await.unwrap();
    let mut all = Vec::new();
    for name in names {
        write(&mut stream, &question(name, RecordType::A)).await.unwrap();
        all.push(found(&read(&mut stream).await.unwrap()));
    }
    all
}
