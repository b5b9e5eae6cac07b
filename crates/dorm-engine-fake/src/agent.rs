//! The agent inside a fake guest: the other end of `dorm-agent-proto`. It exists as long as one
//! stream; processes and files belong to the guest and remain. While the guest is paused, the agent
//! receives and sends no frames.

mod outgoing;
mod request;
mod streams;

use std::collections::BTreeMap;
use std::sync::Arc;

use dorm_agent_proto::frame::{self, Assembler, Decoder, Frame, Kind};
use dorm_agent_proto::{
    Answer, End, Failure, GuestPath, Hello, REQUEST_MAX, REVISION, Resync, VERSION, WriteAt, WriteOptions,
};
use dorm_engine::BoxStream;
use tokio::io::{AsyncReadExt, DuplexStream, split};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::machine::{Machine, STREAM_BYTES};
use crate::watch;
use outgoing::{Outgoing, Sender};

const QUEUED: usize = 64;
const READ_BYTES: usize = 64 * 1024;

/// Opens a new stream to the agent of a machine; the previous one ends.
pub(crate) fn open(machine: &Arc<Machine>) -> BoxStream {
    let (host, guest) = tokio::io::duplex(STREAM_BYTES);
    let session = machine.spawn(serve(Arc::clone(machine), guest));
    machine.replace_session(Some(session));
    Box::new(host)
}

/// Serves one host until its stream ends.
async fn serve(machine: Arc<Machine>, stream: DuplexStream) {
    let (mut reading, writing) = split(stream);
    let (out, queue) = mpsc::channel(QUEUED);
    let spoken = watch::Sender::new(0);
    let mut tasks = JoinSet::new();
    tasks.spawn(outgoing::write(Arc::clone(&machine), writing, queue, spoken.subscribe()));
    let mut session = Session { machine, out, spoken, tasks, channels: BTreeMap::new() };
    let mut decoder = Decoder::for_agent();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match reading.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => decoder.push(&buffer[..length]),
        }
        while let Some(frame) = decoder.next_frame() {
            session.machine.speaking().await;
            session.take(frame).await;
        }
    }
}

/// The state of one host's connection.
struct Session {
    machine: Arc<Machine>,
    out: mpsc::Sender<Outgoing>,
    /// Counts the host's frames; after some answers, the writer waits for the next frame.
    spoken: watch::Sender<u64>,
    tasks: JoinSet<()>,
    channels: BTreeMap<u32, Channel>,
}

struct Channel {
    request: Assembler,
    sender: Sender,
    incoming: Incoming,
    task: Option<AbortHandle>,
}

/// The destination of the host's data on a channel.
enum Incoming {
    Nowhere,
    Input(u64),
    /// `at` is set for a write in place.
    File {
        path: GuestPath,
        at: Option<WriteAt>,
        options: WriteOptions,
        bytes: Vec<u8>,
    },
    Port(mpsc::UnboundedSender<Vec<u8>>),
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Session {
    async fn take(&mut self, frame: Frame) {
        while self.tasks.try_join_next().is_some() {
            self.channels.retain(|_, channel| channel.task.as_ref().is_none_or(|task| !task.is_finished()));
        }
        if frame.kind != Kind::Credit {
            self.spoken.send_modify(|frames| *frames += 1);
        }
        match frame.kind {
            Kind::Resync => self.begin(&frame.payload).await,
            Kind::Request => self.assemble(frame).await,
            Kind::Data => self.data(frame.channel, frame.payload).await,
            Kind::Credit => {
                let number: Result<[u8; 4], _> = frame.payload.as_slice().try_into();
                if let (Some(channel), Ok(bytes)) = (self.channels.get(&frame.channel), number) {
                    channel.sender.add_credit(u32::from_le_bytes(bytes));
                }
            }
            Kind::End => self.ended(frame.channel, &frame.payload).await,
            Kind::Cancel => drop(self.channels.remove(&frame.channel)),
            Kind::Hello | Kind::Answer | Kind::Event => {
                tracing::debug!(kind = ?frame.kind, "a host that speaks like an agent");
            }
        }
    }

    async fn begin(&mut self, payload: &[u8]) {
        self.channels.clear();
        let Some(resync) = Resync::from_bytes(payload) else { return };
        let generation = self.machine.peek(|guest| guest.generation).await;
        // A struct of numbers always has a JSON form.
        let hello =
            serde_json::to_vec(&Hello { version: VERSION, pid: 1, generation, revision: REVISION }).unwrap_or_default();
        self.send(Outgoing::Frames(frame::hello(resync.nonce, &hello))).await;
    }

    async fn assemble(&mut self, frame: Frame) {
        let id = frame.channel;
        let channel = self.channels.entry(id).or_insert_with(|| Channel {
            request: Assembler::within(REQUEST_MAX),
            sender: Sender::new(id, self.out.clone()),
            incoming: Incoming::Nowhere,
            task: None,
        });
        match channel.request.push(frame.part, frame.payload) {
            Ok(None) => {}
            Ok(Some(message)) => match serde_json::from_slice(&message) {
                Ok(request) => self.request(id, request).await,
                Err(error) => self.refuse(id, Failure::Invalid { reason: error.to_string() }).await,
            },
            Err(error) => self.refuse(id, Failure::Invalid { reason: error.to_string() }).await,
        }
    }

    async fn data(&mut self, id: u32, payload: Vec<u8>) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        channel.sender.give_credit(payload.len()).await;
        match &mut channel.incoming {
            Incoming::Nowhere => {}
            Incoming::Input(process) => {
                let process = *process;
                if let Err(failure) = self.machine.act(|guest| guest.write_stdin(process, &payload)).await {
                    self.refuse(id, failure).await;
                }
            }
            Incoming::File { path, bytes, .. } => {
                bytes.extend_from_slice(&payload);
                let (room, used) = self.machine.peek(|guest| guest.files.disk()).await;
                if bytes.len() as u64 + used > room {
                    let path = path.clone();
                    self.refuse(id, Failure::NoSpace { path }).await;
                }
            }
            // The other end may have closed the connection.
            Incoming::Port(port) => drop(port.send(payload)),
        }
    }

    async fn ended(&mut self, id: u32, payload: &[u8]) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        let complete = matches!(serde_json::from_slice(payload), Ok(End::Complete));
        match std::mem::replace(&mut channel.incoming, Incoming::Nowhere) {
            Incoming::Nowhere | Incoming::Port(_) => {}
            Incoming::Input(_) => self.answer(id, Answer::Done).await,
            Incoming::File { path, at, options, bytes } if complete => {
                let written = self.machine.act(|guest| {
                    let stamp = guest.stamp_of(options.owner.as_ref())?;
                    match at {
                        None => guest.files.write(&path, bytes, options.mode, stamp, options.parents),
                        Some(at) => guest.files.write_in_place(&path, at, &bytes, &options, stamp),
                    }
                });
                match written.await {
                    Ok(stat) => self.answer(id, Answer::Stat(stat)).await,
                    Err(failure) => self.refuse(id, failure).await,
                }
            }
            Incoming::File { .. } => {
                self.refuse(id, Failure::Invalid { reason: "the host gave the file up".to_owned() }).await;
            }
        }
    }

    /// Sends an answer that no stream follows.
    async fn answer(&mut self, id: u32, answer: Answer) {
        self.say(id, &Ok(answer)).await;
        self.channels.remove(&id);
    }

    async fn refuse(&mut self, id: u32, failure: Failure) {
        self.say(id, &Err(failure)).await;
        self.channels.remove(&id);
    }

    async fn say(&self, id: u32, answer: &Result<Answer, Failure>) {
        self.send(Outgoing::Frames(outgoing::encoded(Kind::Answer, id, answer))).await;
    }

    /// An error means that the writer has ended, and the stream with it.
    async fn send(&self, outgoing: Outgoing) {
        self.out.send(outgoing).await.ok();
    }
}
