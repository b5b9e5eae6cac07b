//! A TCP connection to a port in the sandbox, through the agent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use dorm_agent_proto::End;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::channel::{Channel, Item};

/// A byte stream to a port in the sandbox. Shutting down its writing half shuts down that of the
/// connection; dropping it closes the connection.
#[derive(Debug)]
pub struct DialedStream {
    channel: Channel,
    rest: Bytes,
    writing: Writing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writing {
    Open,
    Ended,
}

impl DialedStream {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, rest: Bytes::new(), writing: Writing::Open }
    }
}

impl AsyncRead for DialedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            match ready!(this.channel.poll_item(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(Item::Data(data))) => this.rest = data,
                Some(Ok(Item::Event(event))) => {
                    let error = this.channel.unexpected(&format!("an unexpected {event:?} in a connection"));
                    return Poll::Ready(Err(io::Error::other(error)));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, error))),
            }
        }
        let length = this.rest.len().min(into.remaining());
        into.put_slice(&this.rest[..length]);
        this.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for DialedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.writing == Writing::Ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match ready!(self.channel.sender().poll_send(context, bytes)) {
            Some(sent) => Poll::Ready(Ok(sent)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.writing == Writing::Open {
            this.writing = Writing::Ended;
            this.channel.send_end(&End::Complete);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for DialedStream {
    fn drop(&mut self) {
        if self.writing == Writing::Open {
            self.channel.send_end(&End::Complete);
        }
    }
}
