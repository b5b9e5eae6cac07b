//! Opens connections to ports on the sandbox's own loopback.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use dorm_agent_proto::{Answer, Failure};

use crate::agent::Agent;
use crate::call::Call;
use crate::fault;
use crate::link::Gone;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Connects; then bytes are forwarded in both directions until both sides have ended.
pub(crate) fn dial(agent: &Agent, call: &Call, port: u16) -> Result<(), Gone> {
    let place = match agent.connections.place() {
        Ok(place) => place,
        Err(failure) => return call.answer(&Err(failure)),
    };
    match connect(port) {
        Ok(socket) => {
            call.answer(&Ok(Answer::Follows))?;
            agent.connections.add(call.clone(), socket, place);
            Ok(())
        }
        Err(failure) => call.answer(&Err(failure)),
    }
}

fn connect(port: u16) -> Result<TcpStream, Failure> {
    let addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
    let mut failure = Failure::Refused { port };
    let failed = |error| fault::other("connect to port", port.to_string().as_bytes(), error);
    for (number, address) in addresses.iter().enumerate() {
        match TcpStream::connect_timeout(address, CONNECT_TIME_MAX) {
            Ok(socket) => {
                drop(socket.set_nodelay(true));
                socket.set_nonblocking(true).map_err(failed)?;
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            // A sandbox without IPv6 must give the same answer, so the first error counts.
            Err(error) if number == 0 => failure = failed(error),
            Err(_) => {}
        }
    }
    Err(failure)
}
