//! Connections to ports on the sandbox's own loopback.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use dorm_agent_proto::frame::PAYLOAD_MAX;
use dorm_agent_proto::{Answer, End, Failure};

use crate::agent::Agent;
use crate::call::Call;
use crate::channel::Received;
use crate::fault;
use crate::link::Gone;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Connects, and forwards bytes in both directions until both sides have ended.
pub(crate) fn dial(agent: &Agent, call: &Call, port: u16) -> Result<(), Gone> {
    let socket = match connect(port) {
        Ok(socket) => Arc::new(socket),
        Err(failure) => return call.answer(&Err(failure)),
    };
    let to_close = Arc::clone(&socket);
    call.on_gone(Box::new(move || drop(to_close.shutdown(Shutdown::Both))));
    let (incoming, from) = (call.clone(), Arc::clone(&socket));
    if agent.workers.run(move || to_host(&incoming, &from)).is_err() {
        return call.answer(&Err(Failure::Busy));
    }
    from_host(call, &socket)
}

fn connect(port: u16) -> Result<TcpStream, Failure> {
    let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
    let mut failure = Failure::Refused { port };
    for (number, address) in addresses.iter().enumerate() {
        match TcpStream::connect_timeout(address, CONNECT_TIME_MAX) {
            Ok(socket) => {
                drop(socket.set_nodelay(true));
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            // A sandbox without IPv6 must give the same answer, so the first error counts.
            Err(error) if number == 0 => failure = fault::other("connect to port", port.to_string().as_bytes(), error),
            Err(_) => {}
        }
    }
    Err(failure)
}

fn to_host(call: &Call, mut socket: &TcpStream) {
    if call.answer(&Ok(Answer::Follows)).is_err() {
        return;
    }
    let mut buffer = vec![0; PAYLOAD_MAX];
    let end = loop {
        match socket.read(&mut buffer) {
            Ok(0) => break End::Complete,
            Ok(length) => {
                if call.data(&buffer[..length]).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break End::Failed(fault::other("read from", b"the connection", error)),
        }
    };
    let _ = call.end(&end);
}

fn from_host(call: &Call, mut socket: &TcpStream) -> Result<(), Gone> {
    loop {
        match call.receive()? {
            // When the program accepts no more, the rest is received and dropped; the program's own
            // end tells the host.
            Received::Data(data) => drop(socket.write_all(&data)),
            Received::End(End::Complete) => {
                drop(socket.shutdown(Shutdown::Write));
                return Ok(());
            }
            Received::End(_) => {
                drop(socket.shutdown(Shutdown::Both));
                return Ok(());
            }
        }
    }
}
