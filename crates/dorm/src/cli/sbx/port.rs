//! `dorm sbx port`: prints the address of a port in a sandbox, or forwards the port to this host.

use std::net::Ipv4Addr;

use dorm_client::Client;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use dorm_api_types as wire;

use crate::cli::output::{self, Format};
use crate::cli::problem::{Done, Problem};
use crate::exit;

/// The longest request head that is forwarded.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Options of `dorm sbx port`.
#[derive(Debug, clap::Args)]
pub(crate) struct PortOptions {
    /// The sandbox's id or name
    id: String,
    /// The port in the sandbox
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Forward it to this local port (0: any free one) until Ctrl-C. Supports HTTP/1.1 and
    /// WebSocket
    #[arg(long, value_name = "PORT")]
    local: Option<u16>,
    /// Print a link that opens the port in a browser even if it is private. It works once, within a
    /// minute, and then gives access for 12 hours
    #[arg(long, conflicts_with = "local")]
    link: bool,
}

#[derive(Serialize)]
struct Reached<'a> {
    sandbox: &'a str,
    port: u16,
    url: String,
}

/// Prints the address of a port; with `--local`, forwards the port.
pub(super) async fn run(client: &Client, options: PortOptions, format: Format) -> Done {
    // The gateway accepts only ids, since they cannot be guessed.
    let wire::Port { sandbox, label, token, .. } = client.port(&options.id, options.port).await?;
    let path = match options.link {
        true => client.port_link(&sandbox, options.port).await?.path,
        false => "/".to_owned(),
    };
    let listener = match options.local {
        None => None,
        Some(local) => Some(TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await.map_err(|error| {
            Problem::failed(format!("cannot listen on 127.0.0.1:{local}: {error}"), "choose another port with --local")
        })?),
    };
    let url = match &listener {
        None => {
            let daemon_port = client.listens().and_then(|at| at.rsplit_once(':')).map_or("80", |(_, port)| port);
            format!("{}://{label}.localhost:{daemon_port}{path}", client.scheme())
        }
        Some(listener) => {
            let address = listener.local_addr().map_err(|error| Problem::host("get the local address", &error))?;
            format!("http://{address}/")
        }
    };
    match format {
        Format::Json => output::json_line(&Reached { sandbox: &sandbox, port: options.port, url })?,
        Format::Table => output::write(format!("{url}\n").as_bytes())?,
    }
    match listener {
        None => Ok(exit::OK),
        Some(listener) => {
            let lines = format!(
                "X-Dormouse-Sandbox: {sandbox}\r\nX-Dormouse-Port: {}\r\nX-Dormouse-Token: {token}\r\n",
                options.port
            );
            serve(client, &listener, lines).await
        }
    }
}

async fn serve(client: &Client, listener: &TcpListener, lines: String) -> Done {
    output::talk("forwarding; press Ctrl-C to stop");
    let mut signals = crate::cli::signals::Signals::new()?;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = signals.next() => return Ok(exit::OK),
        };
        let (visitor, _) = accepted.map_err(|error| Problem::host("accept a connection", &error))?;
        let (daemon, lines) = (client.clone(), lines.clone());
        tokio::spawn(async move {
            if let Err(error) = forward(visitor, &daemon, &lines).await {
                output::talk(&format!("a connection failed: {error}"));
            }
        });
    }
}

/// Forwards one connection, with `lines` added to the head of its only request.
async fn forward(mut visitor: TcpStream, daemon: &Client, lines: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    let end = loop {
        if let Some(end) = find(&head, b"\r\n\r\n") {
            break end;
        }
        if head.len() > HEAD_BYTES_MAX {
            return visitor
                .write_all(b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n")
                .await;
        }
        if visitor.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    };
    let rest = head.split_off(end + 2);
    let mut passed = rewrite(&head, lines);
    passed.extend_from_slice(&rest);
    let mut daemon = daemon.connect().await.map_err(std::io::Error::other)?;
    visitor.set_nodelay(true)?;
    daemon.write_all(&passed).await?;
    tokio::io::copy_bidirectional(&mut visitor, &mut daemon).await.map(drop)
}

/// Returns the head with `lines` added and keep-alive removed: further requests would not get the
/// lines.
fn rewrite(head: &[u8], lines: &str) -> Vec<u8> {
    let mut rewritten = Vec::with_capacity(head.len() + lines.len() + 32);
    let mut parts = head.split_inclusive(|byte| *byte == b'\n');
    rewritten.extend_from_slice(parts.next().unwrap_or_default());
    rewritten.extend_from_slice(lines.as_bytes());
    let fields: Vec<&[u8]> = parts.collect();
    let name = |field: &[u8]| field.split(|byte| *byte == b':').next().unwrap_or_default().to_ascii_lowercase();
    let upgrades = fields.iter().any(|field| name(field) == b"upgrade");
    for field in fields {
        match name(field).as_slice() {
            b"connection" | b"keep-alive" if !upgrades => {}
            b"x-dormouse-sandbox" | b"x-dormouse-port" | b"x-dormouse-token" => {}
            _ => rewritten.extend_from_slice(field),
        }
    }
    if !upgrades {
        rewritten.extend_from_slice(b"Connection: close\r\n");
    }
    rewritten
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(head: &str) -> String {
        String::from_utf8(rewrite(head.as_bytes(), "X-Dormouse-Port: 80\r\n")).unwrap()
    }

    #[test]
    fn a_request_gets_our_lines_and_is_the_last_of_its_connection() {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nconnection: keep-alive\r\nX-Dormouse-Port: 1\r\n";
        assert_eq!(rewritten(head), "GET / HTTP/1.1\r\nX-Dormouse-Port: 80\r\nHost: a\r\nConnection: close\r\n");
    }

    #[test]
    fn an_upgrade_stays_one() {
        let head = "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
        assert_eq!(
            rewritten(head),
            "GET / HTTP/1.1\r\nX-Dormouse-Port: 80\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        );
    }
}
