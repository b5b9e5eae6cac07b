//! The services on a fake guest's ports.

use std::sync::Arc;

use dorm_engine::BoxStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::guest::Service;
use crate::machine::{Machine, STREAM_BYTES};

/// The body with which the built-in program `serve PORT` answers every HTTP request.
pub const SERVED: &str = "served by a fake guest\n";

/// Opens a stream to a port of the guest; `None` if nothing listens there.
pub(crate) async fn open(machine: &Arc<Machine>, port: u16) -> Option<BoxStream> {
    let service = machine.peek(|guest| guest.listens(port)).await?;
    let (host, guest) = tokio::io::duplex(STREAM_BYTES);
    machine.spawn(answer(service, port, Arc::clone(machine), guest));
    Some(Box::new(host))
}

/// Serves one connection; waits while the guest is paused.
async fn answer(service: Service, port: u16, machine: Arc<Machine>, stream: DuplexStream) {
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
