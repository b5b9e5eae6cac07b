//! The agent's output: one writer for the stream, and a sender for each channel that respects its
//! credit.

use std::sync::Arc;

use dorm_agent_proto::frame::{self, Kind};
use dorm_agent_proto::{End, Event, Failure, WINDOW};
use serde::Serialize;
use tokio::io::{AsyncWriteExt, DuplexStream, WriteHalf};
use tokio::sync::{Semaphore, mpsc};

use crate::machine::Machine;
use crate::watch;

/// Frames to send.
pub(super) enum Outgoing {
    Frames(Vec<u8>),
    /// Frames, followed by nothing until the host has sent more than this many frames.
    ThenQuiet(Vec<u8>, u64),
}

/// The sending end of one channel.
#[derive(Clone)]
pub(super) struct Sender {
    channel: u32,
    out: mpsc::Sender<Outgoing>,
    credit: Arc<Semaphore>,
}

/// The host is gone, so the output has no reader.
pub(super) struct Gone;

impl Sender {
    pub(super) fn new(channel: u32, out: mpsc::Sender<Outgoing>) -> Self {
        Self { channel, out, credit: Arc::new(Semaphore::new(WINDOW as usize)) }
    }

    pub(super) fn add_credit(&self, bytes: u32) {
        let most = Semaphore::MAX_PERMITS - self.credit.available_permits();
        self.credit.add_permits((bytes as usize).min(most));
    }

    /// Gives the host credit for `bytes` more bytes, as many as it has just sent.
    pub(super) async fn give_credit(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
        let mut out = Vec::new();
        frame::encode(&mut out, Kind::Credit, self.channel, &bytes);
        self.out.send(Outgoing::Frames(out)).await.ok();
    }

    /// Sends `payload`, which must fit into one frame.
    pub(super) async fn data(&self, payload: &[u8]) -> Result<(), Gone> {
        self.paid(Kind::Data, payload).await
    }

    pub(super) async fn event(&self, event: &Event) -> Result<(), Gone> {
        // An event always has a JSON form.
        self.paid(Kind::Event, &serde_json::to_vec(event).unwrap_or_default()).await
    }

    pub(super) async fn end(&self, end: Result<(), Failure>) -> Result<(), Gone> {
        let end = end.map_or_else(End::Failed, |()| End::Complete);
        self.frames(encoded(Kind::End, self.channel, &end)).await
    }

    async fn paid(&self, kind: Kind, payload: &[u8]) -> Result<(), Gone> {
        let cost = u32::try_from(payload.len()).unwrap_or(WINDOW).min(WINDOW);
        self.credit.acquire_many(cost).await.map_err(|_| Gone)?.forget();
        let mut out = Vec::new();
        frame::encode(&mut out, kind, self.channel, payload);
        self.frames(out).await
    }

    pub(super) async fn frames(&self, frames: Vec<u8>) -> Result<(), Gone> {
        self.out.send(Outgoing::Frames(frames)).await.map_err(|_| Gone)
    }
}

pub(super) fn encoded(kind: Kind, channel: u32, message: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    // The types of the protocol always have a JSON form.
    frame::encode(&mut out, kind, channel, &serde_json::to_vec(message).unwrap_or_default());
    out
}

/// Writes queued frames while the guest runs.
pub(super) async fn write(
    machine: Arc<Machine>,
    mut writing: WriteHalf<DuplexStream>,
    mut queue: mpsc::Receiver<Outgoing>,
    mut spoken: watch::Receiver<u64>,
) {
    while let Some(outgoing) = queue.recv().await {
        machine.speaking().await;
        let (frames, quiet) = match outgoing {
            Outgoing::Frames(frames) => (frames, None),
            Outgoing::ThenQuiet(frames, until) => (frames, Some(until)),
        };
        if writing.write_all(&frames).await.is_err() {
            return;
        }
        if let Some(until) = quiet
            && spoken.wait_for(|frames| *frames > until).await.is_err()
        {
            return;
        }
    }
}
