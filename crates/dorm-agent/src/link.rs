//! The output: whole frames on standard output, one at a time.
//!
//! Every frame belongs to an epoch, which is the time of one host. Frames of an earlier epoch are
//! dropped. A quiet link holds everything back until the host sends something.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex};

use dorm_agent_proto::frame::{self, Kind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::lock::{lock, wait};

/// The host for which a frame was meant is gone, or has cancelled the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Open,
    Quiet,
}

struct State {
    epoch: u64,
    flow: Flow,
}

/// The output.
pub(crate) struct Link {
    state: Mutex<State>,
    changed: Condvar,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { epoch: 0, flow: Flow::Open }), changed: Condvar::new() }
    }

    /// Begins the epoch of a new host, and returns it.
    pub(crate) fn begin(&self, hello: &[u8]) -> u64 {
        let mut state = lock(&self.state);
        state.epoch += 1;
        state.flow = Flow::Open;
        self.changed.notify_all();
        // If standard output is broken, it cannot be reported; the next host gets another one.
        drop(write_all(hello));
        state.epoch
    }

    /// Sends one message, in as many frames as it needs; frames of other messages may come between
    /// these.
    pub(crate) fn send(&self, epoch: u64, kind: Kind, channel: u32, message: &[u8]) -> Result<(), Gone> {
        if message.len() <= frame::PAYLOAD_MAX {
            let mut bytes = Vec::new();
            frame::encode(&mut bytes, kind, channel, message);
            return self.send_frames(epoch, &bytes);
        }
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, kind, channel, message);
        for frame in bytes.chunks(frame::FRAME_MAX) {
            self.send_frames(epoch, frame)?;
        }
        Ok(())
    }

    /// Sends a last message, and then nothing until [`Link::unquiesce`].
    pub(crate) fn quiesce(&self, epoch: u64, kind: Kind, channel: u32, message: &[u8]) {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, kind, channel, message);
        let mut state = lock(&self.state);
        if state.epoch == epoch {
            drop(write_all(&bytes));
            state.flow = Flow::Quiet;
        }
    }

    pub(crate) fn unquiesce(&self) {
        lock(&self.state).flow = Flow::Open;
        self.changed.notify_all();
    }

    /// Sends whole frames.
    pub(crate) fn send_frames(&self, epoch: u64, bytes: &[u8]) -> Result<(), Gone> {
        let mut state = lock(&self.state);
        while state.flow == Flow::Quiet && state.epoch == epoch {
            state = wait(&self.changed, state);
        }
        if state.epoch != epoch {
            return Err(Gone);
        }
        // The lock is held while writing, so that frames are never mixed.
        write_all(bytes).map_err(|_| Gone)
    }
}

fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    let out = rustix::stdio::stdout();
    while !bytes.is_empty() {
        match rustix::io::write(out, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_ready(out, PollFlags::OUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until a descriptor that may be non-blocking is ready.
pub(crate) fn wait_ready(descriptor: impl AsFd, flags: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(&descriptor, flags)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
