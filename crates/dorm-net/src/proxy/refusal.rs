//! Why a connection is refused before a request can be read, and how the program in the sandbox
//! learns it.

use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(2);

/// Why a connection is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum Refusal {
    /// HTTP without TLS.
    #[error("it speaks HTTP without TLS")]
    PlainHttp,
    /// Neither TLS nor HTTP.
    #[error("it does not speak TLS")]
    NotTls,
    /// The TLS hello is malformed.
    #[error("its TLS hello is malformed: {0}")]
    Malformed(String),
    /// The TLS hello names no host.
    #[error("its TLS hello names no host")]
    NoName,
    /// The egress rules do not allow the host, or it cannot be reached.
    #[error("its host is denied or cannot be reached")]
    Denied,
    /// The daemon cannot answer it.
    #[error("{0}")]
    Internal(String),
    /// It ended before the hello was complete.
    #[error("it ended before its TLS hello was complete")]
    Ended,
}

const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
Content-Length: 82\r\n\r\nThis port of a sandbox with header rules accepts only HTTPS: write https:// first\n";

impl Refusal {
    /// Tells the program, as far as its protocol is known. It closes the connection even so.
    pub(crate) async fn tell(&self, client: &mut TcpStream) {
        let alert = |code: u8| vec![21, 3, 3, 0, 2, 2, code];
        let told = match self {
            Self::PlainHttp => PLAIN_HTTP.to_vec(),
            Self::NotTls | Self::Ended => return,
            Self::Malformed(_) => alert(50),
            Self::NoName => alert(112),
            Self::Denied => alert(49),
            Self::Internal(_) => alert(80),
        };
        let telling = async {
            client.write_all(&told).await?;
            client.shutdown().await
        };
        let _ = tokio::time::timeout(LIMIT, telling).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_plain_http_has_the_length_that_it_says() {
        let text = String::from_utf8(PLAIN_HTTP.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
