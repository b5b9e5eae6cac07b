//! The first message of a TLS connection: the name of the host in it decides what becomes of the
//! connection. The bytes that are read are kept, because the code that serves the connection needs
//! them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::refusal::Refusal;

/// The largest hello. Those of browsers have some 2 KiB.
const BYTES_MAX: usize = 32 << 10;
/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 22;

/// The hello of a connection.
#[derive(Debug)]
pub(crate) struct Hello {
    /// The host, in lower case.
    pub(crate) name: String,
    /// Every byte that was read.
    pub(crate) bytes: Vec<u8>,
}

/// Reads the hello.
pub(crate) async fn read(client: &mut TcpStream) -> Result<Hello, Refusal> {
    let mut acceptor = Acceptor::default();
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = client.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return Err(Refusal::Ended);
        }
        if bytes.is_empty() && buffer[0] != HANDSHAKE {
            return Err(if is_http(&buffer[..count]) { Refusal::PlainHttp } else { Refusal::NotTls });
        }
        bytes.extend_from_slice(&buffer[..count]);
        match parsed(&mut acceptor, &buffer[..count])? {
            Some(Some(name)) => return Ok(Hello { name, bytes }),
            Some(None) => return Err(Refusal::NoName),
            None if bytes.len() > BYTES_MAX => return Err(Refusal::Malformed("it is too large".to_owned())),
            None => {}
        }
    }
}

/// Returns the name of the host once the hello is complete.
pub(crate) fn parsed(acceptor: &mut Acceptor, mut new: &[u8]) -> Result<Option<Option<String>>, Refusal> {
    while !new.is_empty() {
        match acceptor.read_tls(&mut new) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(Refusal::Malformed(error.to_string())),
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Ok(Some(name));
            }
            Err((error, _)) => return Err(Refusal::Malformed(error.to_string())),
        }
    }
    Ok(None)
}

fn is_http(bytes: &[u8]) -> bool {
    let methods: [&[u8]; 9] =
        [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"PATCH ", b"OPTIONS ", b"CONNECT ", b"TRACE "];
    methods.iter().any(|method| bytes.starts_with(method) || method.starts_with(bytes))
}

/// A connection from its beginning, of which some bytes were read already.
#[derive(Debug)]
pub(crate) struct Replayed {
    read: Vec<u8>,
    at: usize,
    rest: TcpStream,
}

impl Replayed {
    pub(crate) fn new(read: Vec<u8>, rest: TcpStream) -> Self {
        Self { read, at: 0, rest }
    }
}

impl AsyncRead for Replayed {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.at < this.read.len() {
            let left = &this.read[this.at..];
            let count = left.len().min(buffer.remaining());
            buffer.put_slice(&left[..count]);
            this.at += count;
            if this.at == this.read.len() {
                this.read = Vec::new();
                this.at = 0;
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.rest).poll_read(context, buffer)
    }
}

impl AsyncWrite for Replayed {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().rest).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().rest).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().rest).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::ServerName;

    use super::*;

    fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_is_found_however_the_bytes_arrive() {
        let bytes = hello("Api.Example.com");
        assert_eq!(parsed(&mut Acceptor::default(), &bytes), Ok(Some(Some("api.example.com".to_owned()))));
        let mut acceptor = Acceptor::default();
        for byte in &bytes[..bytes.len() - 1] {
            assert_eq!(parsed(&mut acceptor, &[*byte]), Ok(None));
        }
        assert_eq!(parsed(&mut acceptor, &bytes[bytes.len() - 1..]), Ok(Some(Some("api.example.com".to_owned()))));
        assert_eq!(parsed(&mut Acceptor::default(), &hello("1.2.3.4")), Ok(Some(None)), "an address is no name");
    }

    #[test]
    fn other_bytes_are_refused() {
        let mut bytes = hello("a.test");
        bytes[5] = 9;
        assert!(matches!(parsed(&mut Acceptor::default(), &bytes), Err(Refusal::Malformed(_))));
        assert!(is_http(b"GET / HTTP/1.1\r\n") && is_http(b"GE") && !is_http(b"SSH-2.0"));
    }
}
