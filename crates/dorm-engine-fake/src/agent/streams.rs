//! Streams that follow an answer. Each function sends until the end of its stream, as credit
//! permits.

use std::sync::Arc;

use dorm_agent_proto::frame::{Kind, PAYLOAD_MAX};
use dorm_agent_proto::{
    Answer, Event, ExitStatus, Failure, GuestPath, Offsets, OutputHeader, OutputKind, Scope, WatchEvent, WatchEventKind,
};
use dorm_engine::BoxStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::sync::mpsc;

use super::outgoing::{Gone, Sender, encoded};
use crate::guest::Process;
use crate::machine::Machine;

pub(super) async fn events(sender: Sender, events: Vec<Event>) -> Result<(), Gone> {
    for event in events {
        sender.event(&event).await?;
    }
    sender.end(Ok(())).await
}

pub(super) async fn file(sender: Sender, bytes: Vec<u8>) -> Result<(), Gone> {
    for chunk in bytes.chunks(PAYLOAD_MAX) {
        sender.data(chunk).await?;
    }
    sender.end(Ok(())).await
}

pub(super) async fn wait(machine: Arc<Machine>, sender: Sender, id: u32, process: u64) -> Result<(), Gone> {
    let mut changes = machine.changes();
    loop {
        changes.mark_seen();
        let answer = match machine.peek(|guest| guest.process(process).map(|process| process.exit)).await {
            Ok(Some(status)) => Ok(Answer::Exited(status)),
            Ok(None) => {
                changes.changed().await.map_err(|_| Gone)?;
                continue;
            }
            Err(failure) => Err(failure),
        };
        return sender.frames(encoded(Kind::Answer, id, &answer)).await;
    }
}

/// A reader of a process's output; the process knows it until it is dropped.
pub(super) struct Follower {
    pub(super) machine: Arc<Machine>,
    pub(super) process: u64,
    pub(super) reader: u64,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.machine.note(|guest| {
            if let Ok(process) = guest.process(self.process) {
                process.readers.remove(&self.reader);
            }
        });
        self.machine.nudge();
    }
}

enum Piece {
    Lost { kind: OutputKind, offset: u64, bytes: u64 },
    Bytes(OutputHeader, Vec<u8>),
    Exited { status: ExitStatus, timed_out: bool },
    Nothing,
}

/// Whether output is sent with its times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    Told,
    Untold,
}

pub(super) async fn output(follower: Follower, sender: Sender, mut at: Offsets, times: Times) -> Result<(), Gone> {
    let mut changes = follower.machine.changes();
    loop {
        changes.mark_seen();
        let piece = follower.machine.peek(|guest| {
            let process = guest.process(follower.process)?;
            let piece = next_piece(process, at);
            if let Piece::Lost { kind, offset, bytes } = piece {
                advance(&mut at, kind, offset + bytes);
            } else if let Piece::Bytes(header, bytes) = &piece {
                advance(&mut at, header.kind, header.offset + bytes.len() as u64);
            }
            process.readers.insert(follower.reader, at);
            Ok(piece)
        });
        match piece.await {
            Ok(Piece::Lost { kind, offset, bytes }) => sender.event(&Event::Lost { kind, offset, bytes }).await?,
            Ok(Piece::Bytes(mut header, bytes)) => {
                header.read_unix_ms = header.read_unix_ms.filter(|_| times == Times::Told);
                sender.data(&[&header.to_bytes()[..], &bytes].concat()).await?;
                // The process may have been waiting for this reader.
                follower.machine.nudge();
            }
            Ok(Piece::Exited { status, timed_out }) => {
                let event = match times {
                    Times::Told => Event::Ended { status, timed_out },
                    Times::Untold => Event::Exited(status),
                };
                sender.event(&event).await?;
                return sender.end(Ok(())).await;
            }
            Ok(Piece::Nothing) => changes.changed().await.map_err(|_| Gone)?,
            Err(failure) => return sender.end(Err::<(), Failure>(failure)).await,
        }
    }
}

fn next_piece(process: &Process, at: Offsets) -> Piece {
    let offset_of = |kind| match kind {
        OutputKind::Stdout => at.stdout,
        OutputKind::Stderr => at.stderr,
    };
    for kind in [OutputKind::Stdout, OutputKind::Stderr] {
        let (offset, start) = (offset_of(kind), process.ring(kind).start());
        if offset < start {
            return Piece::Lost { kind, offset, bytes: start - offset };
        }
    }
    let next = process.marks.iter().find(|mark| mark.end > offset_of(mark.kind));
    if let Some(mark) = next {
        let offset = offset_of(mark.kind);
        let most = usize::try_from(mark.end - offset).unwrap_or(usize::MAX);
        let bytes = process.ring(mark.kind).from(offset, most.min(PAYLOAD_MAX - OutputHeader::LENGTH_MAX));
        let header = OutputHeader { kind: mark.kind, offset, read_unix_ms: Some(mark.unix_ms) };
        return Piece::Bytes(header, bytes.to_vec());
    }
    let exited = |status| Piece::Exited { status, timed_out: process.timed_out };
    process.exit.map_or(Piece::Nothing, exited)
}

fn advance(at: &mut Offsets, kind: OutputKind, to: u64) {
    match kind {
        OutputKind::Stdout => at.stdout = to,
        OutputKind::Stderr => at.stderr = to,
    }
}

pub(super) async fn watch(
    machine: Arc<Machine>,
    sender: Sender,
    path: GuestPath,
    scope: Scope,
    mut seen: usize,
) -> Result<(), Gone> {
    let mut changes = machine.changes();
    let prefix = format!("{}/", path.to_text().trim_end_matches('/'));
    let meant = |event: &WatchEvent| {
        let text = event.path.to_text();
        text.strip_prefix(&prefix).is_some_and(|rest| scope == Scope::Below || !rest.contains('/'))
    };
    loop {
        changes.mark_seen();
        let new = machine.peek(|guest| {
            let (all, new) = guest.files.changes_since(seen);
            seen = all;
            new.map(|new| new.iter().filter(|event| meant(event)).cloned().collect::<Vec<_>>())
        });
        match new.await {
            Some(events) => {
                for event in events {
                    sender.event(&Event::Watch(event)).await?;
                }
            }
            None => {
                let event = WatchEvent { kind: WatchEventKind::Overflow, path: path.clone() };
                sender.event(&Event::Watch(event)).await?;
            }
        }
        changes.changed().await.map_err(|_| Gone)?;
    }
}

/// Carries a connection to a port of the guest.
pub(super) async fn port(
    machine: Arc<Machine>,
    sender: Sender,
    stream: BoxStream,
    mut data: mpsc::UnboundedReceiver<Vec<u8>>,
) -> Result<(), Gone> {
    let (mut reading, mut writing) = split(stream);
    let inwards = async {
        while let Some(bytes) = data.recv().await {
            if writing.write_all(&bytes).await.is_err() {
                return;
            }
        }
        writing.shutdown().await.ok();
    };
    let outwards = async {
        let mut buffer = vec![0; PAYLOAD_MAX];
        loop {
            match reading.read(&mut buffer).await {
                Ok(0) | Err(_) => return sender.end(Ok(())).await,
                Ok(length) => {
                    machine.running().await;
                    sender.data(&buffer[..length]).await?;
                }
            }
        }
    };
    // The host may close its sending half and still read.
    tokio::join!(inwards, outwards).1
}
