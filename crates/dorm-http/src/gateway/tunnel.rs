//! A tunnel between two connections.
//!
//! A connection may end in one direction while it is used in the other: a client that has sent all
//! it has still reads the answer. A client that is gone looks the same until something is sent to
//! it. A tunnel with one end therefore lasts as long as bytes flow in the other direction.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How long a tunnel stays after one direction has ended and nothing flows in the other one; up to
/// twice as long after the last byte.
const HALF_OPEN: Duration = Duration::from_secs(30);

const BUFFER_BYTES: usize = 16 << 10;

/// Copies bytes in both directions until both have ended, one fails, or only one has ended and
/// nothing flows in the other one.
pub(super) async fn join<A, B>(outside: A, inside: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (from_outside, to_outside) = tokio::io::split(outside);
    let (from_inside, to_inside) = tokio::io::split(inside);
    let flow = Flow::default();
    let mut inward = pin!(copy(from_outside, to_inside, &flow));
    let mut outward = pin!(copy(from_inside, to_outside, &flow));
    tokio::select! {
        ended = &mut inward => {
            ended?;
            flow.lasts(outward).await
        }
        ended = &mut outward => {
            ended?;
            flow.lasts(inward).await
        }
    }
}

/// The number of times that bytes were moved.
#[derive(Default)]
struct Flow(AtomicU64);

impl Flow {
    fn moves(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the end of the other direction, as long as it moves bytes.
    async fn lasts(&self, mut other: impl Future<Output = io::Result<()>> + Unpin) -> io::Result<()> {
        loop {
            let before = self.0.load(Ordering::Relaxed);
            match tokio::time::timeout(HALF_OPEN, &mut other).await {
                Ok(ended) => return ended,
                Err(_) if self.0.load(Ordering::Relaxed) == before => return Ok(()),
                Err(_) => {}
            }
        }
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, flow: &Flow) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        flow.moves();
        let mut left = &buffer[..length];
        while !left.is_empty() {
            match to.write(left).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => left = &left[written..],
            }
            flow.moves();
        }
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// The two outer ends of a tunnel, and the tunnel.
    fn tunnel() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
        let (client, outside) = duplex(64);
        let (program, inside) = duplex(64);
        (client, program, tokio::spawn(join(outside, inside)))
    }

    async fn read(from: &mut DuplexStream, length: usize) -> Vec<u8> {
        let mut found = vec![0; length];
        from.read_exact(&mut found).await.unwrap();
        found
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_flow_in_both_directions_until_both_end() {
        let (mut client, mut program, tunnel) = tunnel();
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        let (write, found) = tokio::join!(client.write_all(&sent), read(&mut program, sent.len()));
        write.unwrap();
        assert_eq!(found, sent);
        program.write_all(b"answer").await.unwrap();
        assert_eq!(read(&mut client, 6).await, b"answer");
        client.shutdown().await.unwrap();
        assert_eq!(program.read(&mut [0]).await.unwrap(), 0);
        program.write_all(b"last").await.unwrap();
        drop(program);
        let began = Instant::now();
        tunnel.await.unwrap().unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert_eq!(read(&mut client, 4).await, b"last");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_tunnel_stays_while_neither_side_has_ended() {
        let (mut client, mut program, tunnel) = tunnel();
        sleep(Duration::from_secs(7 * 86_400)).await;
        client.write_all(b"still here").await.unwrap();
        assert_eq!(read(&mut program, 10).await, b"still here");
        assert!(!tunnel.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_ends_soon_after_one_side_if_the_other_one_is_silent() {
        for client_ends in [true, false] {
            let (client, program, tunnel) = tunnel();
            let (mut ends, stays) = if client_ends { (client, program) } else { (program, client) };
            let began = Instant::now();
            ends.shutdown().await.unwrap();
            tunnel.await.unwrap().unwrap();
            let took = began.elapsed();
            assert!(took >= HALF_OPEN && took <= 2 * HALF_OPEN, "{took:?}");
            drop(stays);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_flows_after_the_client_has_ended_is_not_cut() {
        let (mut client, mut program, tunnel) = tunnel();
        client.shutdown().await.unwrap();
        for _ in 0..100 {
            sleep(HALF_OPEN - Duration::from_secs(1)).await;
            program.write_all(b"x").await.unwrap();
            assert_eq!(read(&mut client, 1).await, b"x");
        }
        assert!(!tunnel.is_finished());
        let began = Instant::now();
        tunnel.await.unwrap().unwrap();
        assert!(began.elapsed() <= 2 * HALF_OPEN);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_a_slow_reader_is_not_cut() {
        let (mut client, mut program, tunnel) = tunnel();
        client.shutdown().await.unwrap();
        let answer = vec![7; 4096];
        let writing = tokio::spawn(async move { program.write_all(&answer).await });
        for _ in 0..4096 / 64 {
            sleep(HALF_OPEN - Duration::from_secs(1)).await;
            assert_eq!(read(&mut client, 64).await, [7; 64]);
        }
        writing.await.unwrap().unwrap();
        tunnel.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_after_the_other_end_is_cut() {
        let (mut client, mut program, tunnel) = tunnel();
        client.shutdown().await.unwrap();
        let writing = tokio::spawn(async move { program.write_all(&[7; 4096]).await });
        tunnel.await.unwrap().unwrap();
        assert!(writing.await.unwrap().is_err());
    }
}
