//! Root in a sandbox can replace the agent. Whatever it sends, the host accepts only a limited
//! amount, and nothing invalid.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dorm_agent_client::{Agent, AgentError, ExitStatus, GuestPath, Offsets, Output, PAGE_MAX, ProcessSpec};
use dorm_agent_proto::frame::{self, Decoder, Kind};
use dorm_agent_proto::{
    Answer, Event, Failure, FileKind, FileStat, GuestBytes, GuestString, Hello, LineMatch, OutputHeader, OutputKind,
    REVISION, Resync, VERSION, WINDOW,
};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

const CHANNEL: u32 = 1;

/// The other end of a host's connection, controlled by an attacker.
struct Forger {
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
    decoder: Decoder,
}

impl Forger {
    async fn meet() -> (Agent, Self) {
        let hello = Hello { version: VERSION, pid: 1, generation: 1, revision: REVISION };
        Self::meet_with(&serde_json::to_vec(&hello).unwrap()).await
    }

    /// Greets the host with these bytes.
    async fn meet_with(hello: &[u8]) -> (Agent, Self) {
        let (host, guest) = tokio::io::duplex(64 << 10);
        let (read, write) = tokio::io::split(guest);
        let mut forger = Self { read, write, decoder: Decoder::for_agent() };
        let greet = async {
            let resync = Resync::from_bytes(&forger.next().await).unwrap();
            forger.write.write_all(&frame::hello(resync.nonce, hello)).await.unwrap();
            forger
        };
        let (agent, forger) = tokio::join!(Agent::connect(host, 1), greet);
        (agent.unwrap(), forger)
    }

    /// The payload of the host's next frame; empty if the host has closed the stream.
    async fn next(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                return frame.payload;
            }
            let length = self.read.read(&mut buffer).await.unwrap_or_default();
            if length == 0 {
                return Vec::new();
            }
            self.decoder.push(&buffer[..length]);
        }
    }

    /// Sends a message; returns whether the host still accepts it.
    async fn say(&mut self, kind: Kind, message: &[u8]) -> bool {
        let mut out = Vec::new();
        frame::encode(&mut out, kind, CHANNEL, message);
        self.write.write_all(&out).await.is_ok()
    }

    /// Sends an event as soon as there is credit; returns whether the host has given enough.
    async fn say_event(&mut self, credit: &mut i64, event: &[u8]) -> bool {
        while *credit <= 0 {
            match <[u8; 4]>::try_from(self.next().await) {
                Ok(bytes) => *credit += i64::from(u32::from_le_bytes(bytes)),
                Err(_) => return false,
            }
        }
        *credit -= i64::try_from(event.len()).unwrap();
        self.say(Kind::Event, event).await;
        true
    }

    async fn answer(&mut self, answer: &Result<Answer, Failure>) {
        self.next().await;
        self.say(Kind::Answer, &serde_json::to_vec(answer).unwrap()).await;
    }
}

fn refuses<T>(outcome: Result<T, AgentError>) -> String {
    match outcome {
        Err(error @ AgentError::Protocol(_)) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was believed"),
    }
}

fn root() -> GuestPath {
    GuestPath::try_from("/").unwrap()
}

#[tokio::test]
async fn a_stream_without_credit_ends_the_connection() {
    let (agent, mut forger) = Forger::meet().await;
    let flood = async {
        forger.answer(&Ok(Answer::Follows)).await;
        let mut sent = 0;
        while forger.say(Kind::Data, &[7; 1024]).await {
            sent += 1024;
        }
        sent
    };
    // The caller does not read the stream.
    let call = async {
        let output = agent.dial(80).await.unwrap();
        agent.closed().await;
        drop(output);
    };
    let (sent, ()) = tokio::join!(flood, call);
    assert!(sent < 4 * u64::from(WINDOW), "{sent} bytes were taken");
    assert!(agent.is_closed());
}

#[tokio::test]
async fn a_stream_of_many_items_without_bytes_ends_the_connection() {
    const FRAMES_MAX: u32 = 100_000;
    for (kind, message) in [(Kind::Event, &b""[..]), (Kind::Event, b"1"), (Kind::Data, b"1")] {
        let (agent, mut forger) = Forger::meet().await;
        let flood = async {
            forger.answer(&Ok(Answer::Follows)).await;
            let mut sent = 0;
            while sent < FRAMES_MAX && forger.say(kind, message).await {
                sent += 1;
            }
            // If it was not refused, the caller waits no longer.
            agent.close();
            sent
        };
        // The caller does not read the stream.
        let call = async {
            let output = agent.output(1, Offsets::BEGINNING).await.unwrap();
            agent.closed().await;
            drop(output);
        };
        let (sent, ()) = tokio::join!(flood, call);
        assert!(sent < FRAMES_MAX / 2, "{sent} frames of {} bytes were taken as {kind:?}", message.len());
    }
}

#[tokio::test]
async fn a_stream_to_a_reader_is_given_up_when_the_agent_reads_nothing_of_its_credit() {
    let (agent, mut forger) = Forger::meet().await;
    let flood = async {
        forger.answer(&Ok(Answer::Follows)).await;
        // An agent that respects its credit, and sends so much that the host cannot send all
        // further credit back.
        let mut left = u64::from(WINDOW) * 8 * 1024;
        while left > 0 && forger.say(Kind::Data, &[7; 32 << 10]).await {
            left -= 32 << 10;
            tokio::task::yield_now().await;
        }
        left
    };
    let call = async {
        let mut output = agent.dial(80).await.unwrap();
        let mut buffer = vec![0; 1 << 20];
        while output.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
    };
    let (left, ()) = tokio::join!(flood, call);
    assert!(left > 0 && agent.is_closed());
}

#[tokio::test]
async fn a_list_without_end_is_a_page() {
    let (agent, mut forger) = Forger::meet().await;
    let stat = FileStat {
        kind: FileKind::File,
        size: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        owner: None,
        group: None,
        modified_unix_ms: i64::MIN,
        link: None,
    };
    let entry = dorm_agent_proto::Entry { path: GuestPath::try_from("/x").unwrap(), stat };
    let event = serde_json::to_vec(&Event::Entry(entry)).unwrap();
    let flood = tokio::spawn(async move {
        forger.answer(&Ok(Answer::Follows)).await;
        let mut credit = i64::from(WINDOW);
        loop {
            while credit <= 0 {
                let payload = forger.next().await;
                match <[u8; 4]>::try_from(payload) {
                    Ok(bytes) => credit += i64::from(u32::from_le_bytes(bytes)),
                    // The host has cancelled the call.
                    Err(_) => return forger,
                }
            }
            credit -= i64::try_from(event.len()).unwrap();
            forger.say(Kind::Event, &event).await;
        }
    });
    let page = agent.list(&root(), 1, None, usize::MAX).await.unwrap();
    assert!(page.items.len() == PAGE_MAX && page.more);
    let _forger = flood.await.unwrap();
    assert!(!agent.is_closed());
}

/// The event of a process, which takes a little more than this many bytes on the stream.
fn process(handle: u64, exit: Option<ExitStatus>, bytes: usize) -> Vec<u8> {
    let status = dorm_agent_proto::ProcessStatus {
        process: handle,
        pid: 1,
        arguments: vec![GuestString::try_from("x".repeat(bytes).as_str()).unwrap()],
        directory: root(),
        variables: Vec::new(),
        user: None,
        label: None,
        terminal: None,
        started_unix_ms: 0,
        written: Offsets::BEGINNING,
        exit,
        timed_out: false,
    };
    serde_json::to_vec(&Event::Process(status)).unwrap()
}

#[tokio::test]
async fn items_between_others_that_are_passed_over_count_towards_the_bytes_of_a_page() {
    let (agent, mut forger) = Forger::meet().await;
    let item = 256 << 10;
    let flood = tokio::spawn(async move {
        forger.answer(&Ok(Answer::Follows)).await;
        let mut credit = i64::from(WINDOW);
        for handle in 1.. {
            let exit = (handle % 2 == 0).then_some(ExitStatus::Code(0));
            let event = process(handle, exit, if exit.is_none() { item } else { 1 });
            // In the end, the host cancels the call.
            if !forger.say_event(&mut credit, &event).await {
                return forger;
            }
        }
        forger
    });
    let page = agent.processes_that(None, usize::MAX, |status| status.exit.is_none()).await.unwrap();
    assert!(page.more && page.items.len() < 20, "{} items", page.items.len());
    let least = (page.items.len() * item) as u64;
    assert!((least..=4 << 20).contains(&page.bytes), "{} bytes", page.bytes);
    let _forger = flood.await.unwrap();
}

#[tokio::test]
async fn numbers_that_cannot_be_are_refused() {
    let header = |offset| OutputHeader { kind: OutputKind::Stdout, offset, read_unix_ms: None }.to_bytes();
    let at_the_end = [&header(u64::MAX)[..], b"x"].concat();
    let twice = [&header(0)[..], b"xx"].concat();
    let lost = |offset, bytes| Event::Lost { kind: OutputKind::Stdout, offset, bytes };
    let lost = |offset, bytes| serde_json::to_vec(&lost(offset, bytes)).unwrap();
    type Frames = Vec<(Kind, Vec<u8>)>;
    let cases: [(&str, Frames); 6] = [
        ("behind all that can be", vec![(Kind::Data, at_the_end)]),
        ("the same place again", vec![(Kind::Data, twice.clone()), (Kind::Data, twice)]),
        ("lost behind all that can be", vec![(Kind::Event, lost(1, u64::MAX))]),
        ("lost again", vec![(Kind::Event, lost(0, u64::MAX - 1)), (Kind::Event, lost(0, u64::MAX - 1))]),
        ("a code", vec![(Kind::Event, br#"{"exited":{"code":2147483647}}"#.to_vec())]),
        ("a signal", vec![(Kind::Event, br#"{"exited":{"signal":2147483600}}"#.to_vec())]),
    ];
    for (case, frames) in cases {
        let (agent, mut forger) = Forger::meet().await;
        let last = frames.len() - 1;
        let said = async {
            forger.answer(&Ok(Answer::Follows)).await;
            for (kind, message) in frames {
                forger.say(kind, &message).await;
            }
        };
        let call = async {
            let mut output = agent.output(1, Offsets::BEGINNING).await.unwrap();
            for _ in 0..last {
                output.next().await.unwrap().unwrap();
            }
            refuses(output.next().await.unwrap());
        };
        tokio::join!(said, call);
        assert!(agent.is_closed(), "{case}");
    }
}

#[tokio::test]
async fn credit_that_was_never_sent_for_is_refused() {
    let (agent, mut forger) = Forger::meet().await;
    let said = async {
        forger.next().await;
        forger.say(Kind::Credit, &u32::MAX.to_le_bytes()).await;
    };
    let (refused, ()) = tokio::join!(agent.ping(), said);
    assert!(refuses(refused).contains("credit"));
}

#[tokio::test]
async fn its_words_are_short_and_steer_nothing() {
    let (agent, mut forger) = Forger::meet().await;
    let long = "\x1b[2J\u{202e}\n".repeat(2_000);
    let operand = GuestString::try_from(long.as_str()).unwrap();
    let answer = Err(Failure::Other { operation: long.clone(), operand, reason: long.clone() });
    let (refused, ()) = tokio::join!(agent.ping(), forger.answer(&answer));
    let said = refused.unwrap_err().to_string();
    assert!(said.len() < 2048 && !said.contains(['\x1b', '\n', '\u{202e}']), "{said}");
    // The same applies to protocol errors.
    let (agent, mut forger) = Forger::meet().await;
    let nonsense = serde_json::to_vec(&long).unwrap();
    let said = async {
        forger.next().await;
        forger.say(Kind::Answer, &nonsense).await
    };
    let (refused, _) = tokio::join!(agent.ping(), said);
    let said = refuses(refused);
    assert!(said.len() < 1024 && !said.contains(['\x1b', '\n', '\u{202e}']), "{said}");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_learns_of_the_end_at_once() {
    let (agent, mut forger) = Forger::meet().await;
    let agent = Arc::new(agent);
    let waiting = { agent.clone() };
    let waiting = tokio::spawn(async move { waiting.wait(7).await });
    forger.next().await;
    forger.say(Kind::Data, b"no answer was this").await;
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("an end").unwrap();
    refuses(waited);
}

#[tokio::test]
async fn an_agent_of_an_earlier_release_is_not_sent_what_it_does_not_know() {
    // The greeting of the agent of 0.1.0.
    let (agent, mut forger) = Forger::meet_with(br#"{"version":1,"pid":1,"generation":3}"#).await;
    let refused = agent.make_new_directory(&root(), None).await.unwrap_err();
    assert!(matches!(refused, AgentError::Older { .. }), "{refused}");
    assert!(agent.move_to(&root(), &root(), None).await.is_err());
    // The next frame that it gets is of a request that it knows, and the connection is usable.
    let answer = async {
        assert_eq!(forger.next().await, br#""ping""#);
        let mut out = Vec::new();
        frame::encode(&mut out, Kind::Answer, CHANNEL, br#"{"Ok":"done"}"#);
        forger.write.write_all(&out).await.unwrap();
        forger
    };
    let (pong, _forger) = tokio::join!(agent.ping(), answer);
    pong.unwrap();
}

#[tokio::test]
async fn an_agent_of_an_earlier_release_is_asked_for_output_without_times() {
    let (agent, mut forger) = Forger::meet_with(br#"{"version":1,"pid":1,"generation":3,"revision":1}"#).await;
    let answer = async {
        assert_eq!(forger.next().await, br#"{"output":{"process":1,"from":{"stdout":0,"stderr":0}}}"#);
        let data = OutputHeader { kind: OutputKind::Stderr, offset: 0, read_unix_ms: None }.to_bytes();
        let mut out = Vec::new();
        frame::encode(&mut out, Kind::Answer, CHANNEL, br#"{"Ok":"follows"}"#);
        frame::encode(&mut out, Kind::Data, CHANNEL, &[&data[..], b"text"].concat());
        frame::encode(&mut out, Kind::Event, CHANNEL, br#"{"exited":{"code":0}}"#);
        frame::encode(&mut out, Kind::End, CHANNEL, br#""complete""#);
        forger.write.write_all(&out).await.unwrap();
        forger
    };
    let (output, _forger) = tokio::join!(agent.output(1, Offsets::BEGINNING), answer);
    let pieces: Vec<_> = output.unwrap().map(Result::unwrap).collect().await;
    let text = Output::Stderr { offset: 0, read_unix_ms: None, bytes: "text".into() };
    assert_eq!(pieces, [text, Output::Exited(ExitStatus::Code(0))]);
    let refused = agent.start_within(&ProcessSpec::new(Vec::new()), Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(refused, AgentError::Older { ability: "limit the time of a process" }), "{refused}");
}

#[tokio::test]
async fn a_search_with_more_results_than_were_asked_for_ends_the_connection() {
    let (agent, mut forger) = Forger::meet().await;
    let answer = async {
        forger.answer(&Ok(Answer::Follows)).await;
        let line = br#"{"line":{"path":"/x","line":1,"at":0,"text":"x","text_at":0,"cut":false}}"#;
        forger.say(Kind::Event, line).await;
        forger.say(Kind::Event, line).await;
        forger
    };
    let (found, _forger) = tokio::join!(agent.find_lines(search(1)), answer);
    assert!(matches!(found, Err(AgentError::Protocol(_))), "{found:?}");
    agent.closed().await;
}

fn search(results: u32) -> dorm_agent_proto::SearchSpec {
    dorm_agent_proto::SearchSpec {
        path: root(),
        depth: None,
        name: None,
        kind: None,
        lines: None,
        case: dorm_agent_proto::Case::Counts,
        limits: dorm_agent_proto::SearchLimits { results, entries: 1, bytes: 1, time_ms: 1 },
    }
}

#[tokio::test]
async fn of_the_results_of_a_search_no_more_are_kept_than_an_agent_sends() {
    const LINE: usize = 900_000;
    // 20 MiB that end, and a flood.
    for (lines, ends) in [(23, true), (u64::MAX, false)] {
        let (agent, mut forger) = Forger::meet().await;
        let flood = async {
            forger.answer(&Ok(Answer::Follows)).await;
            let mut credit = i64::from(WINDOW);
            let line = |line| {
                let text = GuestBytes(vec![b'x'; LINE]);
                Event::Line(LineMatch { path: root(), line, at: 0, text, text_at: 0, cut: true })
            };
            let summary = Event::Searched(dorm_agent_proto::SearchSummary::default());
            for event in (1..=lines).map(line).chain([summary]) {
                let event = serde_json::to_vec(&event).unwrap();
                // The host ends a flood.
                if !forger.say_event(&mut credit, &event).await {
                    return forger;
                }
            }
            forger.say(Kind::End, br#""complete""#).await;
            forger
        };
        let (found, _forger) = tokio::join!(agent.find_lines(search(10_000)), flood);
        match found {
            Ok(found) if ends => {
                let bytes: usize = found.lines.iter().map(|line| line.text.0.len()).sum();
                assert!((3 << 20..4 << 20).contains(&bytes), "{bytes} bytes");
                assert_eq!(found.summary.stopped, Some(dorm_agent_proto::SearchLimit::Size));
            }
            Err(AgentError::Protocol(_)) if !ends => agent.closed().await,
            other => panic!("{:?}", other.map(|found| found.lines.len())),
        }
    }
}

#[tokio::test]
async fn data_waits_for_an_agent_that_gives_credit_without_reading() {
    const ENOUGH: u64 = 16 << 20;
    let (agent, mut forger) = Forger::meet().await;
    let accepted = AtomicU64::new(0);
    let call = async {
        let mut output = agent.dial(80).await.unwrap();
        while accepted.load(Ordering::SeqCst) < ENOUGH {
            let length = output.write(&[7; 32 << 10]).await.unwrap() as u64;
            accepted.fetch_add(length, Ordering::SeqCst);
        }
    };
    let attack = async {
        forger.answer(&Ok(Answer::Follows)).await;
        let mut granted = 0;
        for _ in 0..10_000 {
            // Credit for data that the host has queued, and that was never read.
            let more = accepted.load(Ordering::SeqCst).min(ENOUGH / 2) - granted;
            if more > 0 {
                granted += more;
                assert!(forger.say(Kind::Credit, &(more as u32).to_le_bytes()).await);
            }
            tokio::task::yield_now().await;
        }
        let queued = accepted.load(Ordering::SeqCst);
        assert!(queued < 3 << 20, "{queued} bytes were queued");
        // More is sent as it reads.
        let mut read = 0;
        while read < ENOUGH / 2 {
            read += forger.next().await.len() as u64;
            let more = accepted.load(Ordering::SeqCst).saturating_sub(granted);
            granted += more;
            assert!(more == 0 || forger.say(Kind::Credit, &(more as u32).to_le_bytes()).await);
        }
        assert!(!agent.is_closed());
        agent.close();
    };
    tokio::select! {
        () = call => panic!("all was accepted"),
        () = attack => {}
    }
}

#[tokio::test]
async fn calls_to_an_agent_that_reads_nothing_are_refused_before_they_fill_the_memory() {
    let (agent, _forger) = Forger::meet().await;
    let large = ProcessSpec::new(vec!["x".repeat(8 << 20).as_str().try_into().unwrap()]);
    let mut calls = Vec::new();
    for _ in 0..8 {
        let mut call = Box::pin(agent.start(&large));
        match futures_util::poll!(&mut call) {
            std::task::Poll::Pending => calls.push(call),
            std::task::Poll::Ready(refused) => {
                assert!(matches!(refused, Err(AgentError::Behind)), "{refused:?}");
            }
        }
    }
    assert!((3..=5).contains(&calls.len()), "{} calls were queued", calls.len());
    assert!(!agent.is_closed());
}

#[tokio::test]
async fn more_of_a_file_than_was_asked_for_ends_the_connection() {
    let (agent, mut forger) = Forger::meet().await;
    let stat = FileStat {
        kind: FileKind::File,
        size: 10,
        mode: 0o644,
        uid: 0,
        gid: 0,
        owner: None,
        group: None,
        modified_unix_ms: 0,
        link: None,
    };
    let answer = async {
        forger.answer(&Ok(Answer::Stat(stat))).await;
        forger.say(Kind::Data, &[7; 10]).await;
        forger.say(Kind::Data, &[7]).await;
        forger
    };
    let read = async {
        let (_, mut content) = agent.read_file(&root(), 0, Some(10)).await.unwrap();
        let mut bytes = 0;
        loop {
            match content.next().await.unwrap() {
                Ok(data) => bytes += data.len(),
                Err(refused) => return (bytes, refused),
            }
        }
    };
    let ((bytes, refused), _forger) = tokio::join!(read, answer);
    assert!(bytes <= 10 && matches!(refused, AgentError::Protocol(_)), "{bytes} bytes, then {refused}");
    agent.closed().await;
}
