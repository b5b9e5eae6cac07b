//! Asks a service whether it is well.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dorm_agent_proto::Probe;

/// How much of a response is read to find its status.
const STATUS_LINE_MAX: usize = 1024;

/// Returns why the service is not well.
pub(super) fn probe(probe: &Probe, timeout: Duration) -> Result<(), String> {
    let deadline = Instant::now() + timeout;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer within {} ms", timeout.as_millis()),
        _ => error.to_string(),
    };
    match probe {
        Probe::Tcp { port } => connect(*port, deadline).map(drop).map_err(failed),
        Probe::Http { port, path } => {
            let status = connect(*port, deadline).and_then(|stream| get(stream, *port, path, deadline));
            match status.map_err(failed)? {
                Some(200..=399) => Ok(()),
                Some(status) => Err(format!("it answered with status {status}")),
                None => Err("its answer is not one of HTTP".to_owned()),
            }
        }
    }
}

fn connect(port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let connect = |address| TcpStream::connect_timeout(&address, left(deadline)?);
    connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .or_else(|error| connect(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).map_err(|_| error))
}

fn get(mut stream: TcpStream, port: u16, path: &str, deadline: Instant) -> io::Result<Option<u16>> {
    stream.set_write_timeout(Some(left(deadline)?))?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nUser-Agent: dormouse-health\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut read = Vec::new();
    let mut buffer = [0; STATUS_LINE_MAX];
    while !read.contains(&b'\n') && read.len() < STATUS_LINE_MAX {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut buffer)? {
            0 => break,
            length => read.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(status(&read))
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.checked_duration_since(Instant::now()) {
        Some(left) if !left.is_zero() => Ok(left),
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Returns the status in the first line of a response.
fn status(response: &[u8]) -> Option<u16> {
    let line = response.split(|byte| *byte == b'\n').next()?;
    let rest = std::str::from_utf8(line).ok()?.strip_prefix("HTTP/1.")?;
    rest.split_whitespace().nth(1)?.parse().ok().filter(|status| (100..=599).contains(status))
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn only_the_first_line_of_a_response_counts() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\nX: 500\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 503\r\n"), Some(503));
        for bad in [&b""[..], b"HTTP/1.1", b"HTTP/2 200", b"200 OK", b"HTTP/1.1 99 x", b"HTTP/1.1 \xff", b"SSH-2.0-x\n"]
        {
            assert_eq!(status(bad), None);
        }
    }
}
