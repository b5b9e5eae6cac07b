//! The standard error of a container, written by `runsc create`, by the agent, and by root in the
//! sandbox, who can open `/proc/1/fd/2`. It is a FIFO of which the last bytes are kept here, so
//! that nothing grows on the host. Fast writers are throttled.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dorm_agent_client::legible;
use tokio::net::unix::pipe::{self, Receiver};
use tokio::task::AbortHandle;

use crate::error::GvisorError;
use crate::lock::lock;
use crate::notes::Home;

/// How many bytes are kept.
const KEPT_BYTES: usize = 4 << 10;
/// How many bytes are read at once, and the pause after each read: at most some MiB per second.
const READ_BYTES: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(10);
/// How many of the last lines are shown.
const LINES: usize = 4;

/// The most recent output. It is read as long as a clone of this exists.
#[derive(Clone, Debug)]
pub(crate) struct Said(Arc<Following>);

#[derive(Debug)]
struct Following {
    ring: Arc<Ring>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Ring {
    pipe: Receiver,
    kept: Mutex<VecDeque<u8>>,
}

impl Said {
    /// Starts reading the output of the container in `home`. Must be called within the runtime.
    pub(crate) fn open(home: &Home) -> Result<Self, GvisorError> {
        let path = home.said();
        // Opened for both directions, so that it never ends and writers always find a reader.
        let pipe = pipe::OpenOptions::new().read_write(true).open_receiver(&path);
        let pipe = pipe.map_err(|source| GvisorError::file("open", &path, source))?;
        let ring = Arc::new(Ring { pipe, kept: Mutex::default() });
        let task = tokio::spawn(follow(ring.clone())).abort_handle();
        Ok(Self(Arc::new(Following { ring, task })))
    }

    /// Returns the last lines, joined into one.
    pub(crate) fn last_words(&self) -> String {
        // Reads what the runtime has not reported yet, at most what a FIFO holds: the writer may be
        // gone.
        let ring = &self.0.ring;
        for _ in 0..(64 << 10) / READ_BYTES {
            if !matches!(ring.take(|buffer| Ok(rustix::io::read(&ring.pipe, buffer)?)), Ok(READ_BYTES)) {
                break;
            }
        }
        let mut kept = lock(&ring.kept);
        let text = String::from_utf8_lossy(kept.make_contiguous());
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.is_empty() {
            true => "its standard error is empty".to_owned(),
            false => legible(&lines[lines.len().saturating_sub(LINES)..].join("; ")),
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ring {
    /// Keeps the bytes from `read`, and returns how many they were.
    fn take(&self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let mut buffer = [0; READ_BYTES];
        let length = read(&mut buffer)?;
        let mut kept = lock(&self.kept);
        kept.extend(&buffer[length.saturating_sub(KEPT_BYTES)..length]);
        let surplus = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..surplus);
        Ok(length)
    }
}

async fn follow(ring: Arc<Ring>) {
    loop {
        let read = match ring.pipe.readable().await {
            Ok(()) => ring.take(|buffer| ring.pipe.try_read(buffer)),
            Err(error) => Err(error),
        };
        match read {
            Ok(_) => tokio::time::sleep(PAUSE).await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "cannot read the standard error of a sandbox any more");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::stream::fifo;

    fn home() -> (tempfile::TempDir, Home) {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::new(directory.path()).unwrap();
        std::fs::create_dir(home.directory()).unwrap();
        crate::bundle::make_fifos(&home).unwrap();
        (directory, home)
    }

    #[tokio::test]
    async fn the_last_lines_of_a_writer_that_is_gone_are_kept() {
        let (_directory, home) = home();
        let said = Said::open(&home).unwrap();
        assert_eq!(said.last_words(), "its standard error is empty");
        let mut writer = fifo(&home.said()).unwrap();
        writer.write_all(b"one\ntwo\n\nthree\x1b[2J\nfour\nfive\n").unwrap();
        drop(writer);
        assert_eq!(said.last_words(), "two; three\\u{1b}[2J; four; five");
    }

    #[tokio::test]
    async fn only_the_end_of_a_flood_is_kept_and_the_flood_continues() {
        let (_directory, home) = home();
        let said = Said::open(&home).unwrap();
        let mut writer = fifo(&home.said()).unwrap();
        let mut written = 0;
        while written < 1 << 20 {
            match writer.write(&[b'x'; 4096]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        said.last_words();
        assert!(lock(&said.0.ring.kept).len() <= KEPT_BYTES);
    }
}
