//! The entry points of the fuzzers: the stream of an agent that root in the sandbox has replaced.
//! Not part of any release build.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use dorm_agent_proto::frame::{self, Decoder, FRAME_MAX, Frame, Kind, PAYLOAD_MAX};
use dorm_agent_proto::{Hello, Nonce, Offsets, OutputKind, REVISION, Resync, Scope, User, VERSION, WriteOptions};
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::{Agent, AgentError, GuestPath, Output, OutputStream, PAGE_MAX};

/// The maximum length of a text of the guest with the host's words around it.
const TEXT_MAX: usize = 1024;
const PIPE_BYTES: usize = 64 << 10;
/// More than one window of credit, so that writing must wait for it.
const INPUT_BYTES: usize = 1 << 20;

/// Searches for frames in `bytes`, as both ends of a stream do.
///
/// # Panics
/// When the result depends on how the bytes are split into reads, or has more bytes than the input.
pub fn frames(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    for new in [Decoder::for_agent, || Decoder::for_host(Nonce([0; 16]))] {
        let mut whole = new();
        whole.push(bytes);
        let found = all(&mut whole);
        let mut cut_up = new();
        let mut found_in_pieces = Vec::new();
        for piece in bytes.chunks(usize::from(*cut).max(1)) {
            cut_up.push(piece);
            found_in_pieces.append(&mut all(&mut cut_up));
        }
        assert_eq!(found, found_in_pieces);
        assert_eq!(whole.in_step(), cut_up.in_step());
        assert!(found.iter().all(|frame| frame.payload.len() <= PAYLOAD_MAX));
        assert!(found.iter().map(|frame| frame.payload.len()).sum::<usize>() <= bytes.len());
    }
}

fn all(decoder: &mut Decoder) -> Vec<Frame> {
    std::iter::from_fn(|| decoder.next_frame()).collect()
}

/// Simulates an agent that sends `moves` while calls of all kinds are open, and then closes the
/// stream. Moves are messages (kind, channel, two bytes of length, the message) and, with an
/// invalid kind, raw bytes.
///
/// # Panics
/// When a call takes more than allowed, or returns a text that is long or contains terminal control
/// characters.
pub fn stream(moves: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        let (host, guest) = tokio::io::duplex(PIPE_BYTES);
        tokio::join!(call(host), say(guest, moves));
    });
}

async fn say(mut guest: DuplexStream, moves: &[u8]) {
    let mut decoder = Decoder::for_agent();
    let mut buffer = vec![0; FRAME_MAX];
    let resync = loop {
        if let Some(frame) = decoder.next_frame() {
            break Resync::from_bytes(&frame.payload).expect("a resync");
        }
        let length = guest.read(&mut buffer).await.expect("to read");
        decoder.push(&buffer[..length]);
    };
    let hello =
        serde_json::to_vec(&Hello { version: VERSION, pid: 1, generation: 1, revision: REVISION }).expect("text");
    let (mut reading, mut writing) = tokio::io::split(guest);
    let write = async {
        writing.write_all(&frame::hello(resync.nonce, &hello)).await?;
        writing.write_all(&messages(moves)).await?;
        writing.shutdown().await
    };
    let read = async { while reading.read(&mut buffer).await.is_ok_and(|length| length > 0) {} };
    // The host may close the stream at any time.
    drop(tokio::join!(write, read));
}

/// Returns the bytes of `moves` on the stream.
fn messages(mut moves: &[u8]) -> Vec<u8> {
    const KINDS: [Kind; 9] = [
        Kind::Answer,
        Kind::Data,
        Kind::Event,
        Kind::Credit,
        Kind::End,
        Kind::Resync,
        Kind::Hello,
        Kind::Request,
        Kind::Cancel,
    ];
    let mut out = Vec::new();
    while let Some(([kind, channel, low, high], rest)) = moves.split_first_chunk() {
        let (message, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        match KINDS.get(usize::from(*kind)) {
            Some(kind) => frame::encode(&mut out, *kind, u32::from(*channel), message),
            None => out.extend_from_slice(message),
        }
        moves = rest;
    }
    out
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<(), AgentError>> + 'a>>;

async fn call(host: DuplexStream) {
    let agent = match Agent::connect(host, 1).await {
        Ok(agent) => agent,
        Err(error) => return legible(&error),
    };
    let agent = &agent;
    let root = &GuestPath::try_from("/").expect("a path");
    // In the order of their channels, from 1.
    let calls: Vec<Call<'_>> = vec![
        Box::pin(async { agent.stat(root).await.map(drop) }),
        Box::pin(async {
            let page = agent.list(root, 3, None, usize::MAX).await?;
            assert!(page.items.len() <= PAGE_MAX);
            Ok(())
        }),
        Box::pin(async {
            let (_, content) = agent.read_file(root, 0, None).await?;
            finish(content).await
        }),
        Box::pin(async { follow(agent.output(1, Offsets::BEGINNING).await?).await }),
        Box::pin(async { finish(agent.watch(root, Scope::Below).await?).await }),
        Box::pin(async { agent.processes().await.map(|list| assert!(list.len() <= PAGE_MAX)) }),
        Box::pin(async {
            let mut stream = agent.dial(80).await?;
            // The other calls show what ends the stream.
            drop(stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await);
            drop(stream.read_to_end(&mut Vec::new()).await);
            Ok(())
        }),
        Box::pin(async { agent.write_stdin(1, vec![7; INPUT_BYTES].into()).await }),
        Box::pin(async {
            let pieces = stream::iter((0..64).map(|_| Ok::<_, AgentError>(Bytes::from_static(&[7; 32 << 10]))));
            agent.write_file(root, WriteOptions::default(), pieces).await.map(drop)
        }),
        Box::pin(async { agent.wait(1).await.map(drop) }),
        Box::pin(async { agent.metrics().await.map(drop) }),
        Box::pin(async { agent.account(&User::Id { uid: 0, gid: None }).await.map(drop) }),
        Box::pin(async { agent.quiesce().await }),
    ];
    for outcome in join_all(calls).await {
        if let Err(error) = outcome {
            legible(&error);
        }
    }
}

async fn finish<T>(mut items: impl Stream<Item = Result<T, AgentError>> + Unpin) -> Result<(), AgentError> {
    while let Some(item) = items.next().await {
        item?;
    }
    Ok(())
}

/// Reads an output, whose offsets must only grow.
async fn follow(mut output: OutputStream) -> Result<(), AgentError> {
    let mut ends = [0; 2];
    while let Some(piece) = output.next().await {
        let (at, offset, bytes) = match piece? {
            Output::Stdout { offset, bytes, .. } => (0, offset, bytes.len() as u64),
            Output::Stderr { offset, bytes, .. } => (1, offset, bytes.len() as u64),
            Output::Lost { kind, offset, bytes } => (usize::from(kind == OutputKind::Stderr), offset, bytes),
            Output::Exited(_) => continue,
        };
        assert!(offset >= ends[at], "{offset} comes after {}", ends[at]);
        ends[at] = offset.checked_add(bytes).expect("a place in an output");
    }
    Ok(())
}

fn legible(error: &AgentError) {
    let text = error.to_string();
    assert!(text.len() <= TEXT_MAX, "{} bytes: {text}", text.len());
    assert!(!text.contains(|one: char| one.is_control() || ('\u{202a}'..='\u{202e}').contains(&one)), "{text:?}");
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use dorm_agent_proto::{
        Answer, End, Event, ExitStatus, Failure, FileKind, FileStat, GuestString, OutputHeader, WatchEvent,
        WatchEventKind,
    };
    use serde::Serialize;

    use super::*;

    fn seeds(target: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
    }

    /// Checks that the committed seed is up to date; `DORM_UPDATE` updates it.
    fn seed(target: &str, name: &str, bytes: &[u8]) {
        let path = seeds(target).join(name);
        if std::env::var_os("DORM_UPDATE").is_some() {
            std::fs::create_dir_all(seeds(target)).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{} is stale: run this with DORM_UPDATE=1", path.display());
    }

    fn each(target: &str, read: fn(&[u8])) {
        for seed in std::fs::read_dir(seeds(target)).unwrap() {
            read(&std::fs::read(seed.unwrap().path()).unwrap());
        }
    }

    fn one(kind: u8, channel: u8, message: &[u8]) -> Vec<u8> {
        let [low, high] = u16::try_from(message.len()).unwrap().to_le_bytes();
        [&[kind, channel, low, high], message].concat()
    }

    fn json(value: &impl Serialize) -> Vec<u8> {
        serde_json::to_vec(value).unwrap()
    }

    fn answer(channel: u8, answer: Answer) -> Vec<u8> {
        one(0, channel, &json(&Ok::<_, Failure>(answer)))
    }

    fn stat() -> FileStat {
        FileStat {
            kind: FileKind::File,
            size: 5,
            mode: 0o644,
            uid: 0,
            gid: 0,
            owner: None,
            group: None,
            modified_unix_ms: 0,
            link: None,
        }
    }

    #[test]
    fn frames_that_fuzzers_begin_with_pass() {
        let resync = Resync { nonce: Nonce([0; 16]), generation: 3, version: VERSION };
        let mut to_agent = vec![7];
        to_agent.extend_from_slice(&frame::resync(&resync)[FRAME_MAX - 40..]);
        frame::encode(&mut to_agent, Kind::Request, 1, b"\"ping\"");
        seed("frames", "to-agent", &to_agent);
        let mut to_host = vec![255];
        to_host.extend_from_slice(&frame::hello(resync.nonce, br#"{"version":1,"pid":1,"generation":3}"#));
        frame::encode(&mut to_host, Kind::Answer, 1, br#"{"Ok":"done"}"#);
        seed("frames", "to-host", &to_host);
        seed("frames", "cut", &to_host[..to_host.len() - 3]);
        each("frames", super::frames);
    }

    #[test]
    fn streams_that_fuzzers_begin_with_pass() {
        let path = GuestPath::try_from("/a").unwrap();
        let entry = dorm_agent_proto::Entry { path: path.clone(), stat: stat() };
        let listed = [answer(2, Answer::Follows), one(2, 2, &json(&Event::Entry(entry))), one(4, 2, b"\"complete\"")];
        seed("stream", "list", &listed.concat());
        let header = OutputHeader { kind: OutputKind::Stderr, offset: 9, read_unix_ms: Some(7) }.to_bytes();
        let lost = Event::Lost { kind: OutputKind::Stdout, offset: 0, bytes: 7 };
        let output = [
            answer(4, Answer::Follows),
            one(1, 4, &[&header[..], b"text"].concat()),
            one(2, 4, &json(&lost)),
            one(2, 4, &json(&Event::Exited(ExitStatus::Code(3)))),
            one(4, 4, &json(&End::Complete)),
        ];
        seed("stream", "output", &output.concat());
        let failed = Failure::Other {
            operation: "read".to_owned(),
            operand: GuestString::try_from("/a").unwrap(),
            reason: "\u{1b}[31m no".to_owned(),
        };
        let files = [
            answer(1, Answer::Stat(stat())),
            answer(3, Answer::Stat(stat())),
            one(1, 3, b"bytes"),
            one(4, 3, &json(&End::Failed(failed.clone()))),
            one(3, 8, &[0, 0, 4, 0]),
            one(3, 9, &[0, 0, 4, 0]),
            one(0, 9, &json(&Err::<Answer, _>(failed))),
        ];
        seed("stream", "files", &files.concat());
        let change = WatchEvent { path, kind: WatchEventKind::Created };
        let rest = [
            answer(5, Answer::Follows),
            one(2, 5, &json(&Event::Watch(change))),
            answer(7, Answer::Follows),
            one(1, 7, b"HTTP/1.0 200 OK\r\n\r\n"),
            answer(13, Answer::Done),
            one(9, 0, b"no frame"),
        ];
        seed("stream", "rest", &rest.concat());
        each("stream", super::stream);
    }
}
