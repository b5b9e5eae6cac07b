//! The services on a fake guest's ports.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::guest::Service;
use crate::machine::Machine;

/// The body with which the built-in program `serve PORT` answers every HTTP request.
pub const SERVED: &str = "served by a fake guest\n";

/// Serves one connection; waits while the guest is paused.
pub(crate) async fn answer(service: Service, port: u16, machine: Arc<Machine>, stream: DuplexStream) {
    let served = match service {
        Service::Http => http(&machine, stream).await,
        Service::Mirror => mirror(&machine, stream).await,
    };
    if let Err(error) = served {
        tracing::debug!(%error, port, run = %machine.run(), "a connection to a fake port ended early");
    }
}

async fn http(machine: &Machine, mut stream: DuplexStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        machine.running().await;
    }
    let length = SERVED.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{SERVED}"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

async fn mirror(machine: &Machine, mut stream: DuplexStream) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await? > 0 {
        machine.running().await;
        stream.write_all(&bytes).await?;
        bytes.clear();
    }
    stream.shutdown().await
}
