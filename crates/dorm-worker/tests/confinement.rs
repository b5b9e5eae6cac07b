//! The abilities of an attacker's code in a worker: it can only write messages into its pipe.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Stdio;

use dorm_worker::{Frames, Limits, Program, Worker, WorkerError};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const USER: u32 = 165_535;
const LIMITS: Limits = Limits { memory_bytes: 256 << 20, cpu_seconds: 20, silence_seconds: 60 };

fn spawn(how: &str, role: &str, arguments: &[&str], limits: Limits) -> Worker {
    let program = Program::new(Path::new(env!("CARGO_BIN_EXE_dorm-worker-hostile")), &[how], USER);
    program.spawn(role, arguments, limits, (Stdio::piped(), Stdio::piped())).unwrap()
}

/// The only message of a worker, or the error if there is none.
fn answer(mut worker: Worker) -> Result<String, WorkerError> {
    let mut frames = Frames::new(worker.output().unwrap());
    let read = frames.next_frame().and_then(|frame| match frame {
        Some(_) => frames.content(),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    });
    match read {
        Ok(said) => Ok(String::from_utf8(said).unwrap()),
        Err(error) => Err(worker.failed(error)),
    }
}

/// A place with one of everything that an attacker could reach.
struct Place {
    directory: tempfile::TempDir,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    datagram: UnixDatagram,
    hidden: UnixListener,
    name: String,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // Every user may do everything with it, if a path leads here.
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(path.join("dormouse.db"), "records").unwrap();
        let name = format!("dorm-worker-{}", std::process::id());
        let place = Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            unix: UnixListener::bind(path.join("unix")).unwrap(),
            datagram: UnixDatagram::bind(path.join("datagram")).unwrap(),
            hidden: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
            name,
            directory,
        };
        for file in ["dormouse.db", "unix", "datagram"] {
            let everybody = fs::Permissions::from_mode(0o666);
            fs::set_permissions(place.directory.path().join(file), everybody).unwrap();
        }
        place.tcp.set_nonblocking(true).unwrap();
        place.udp.set_nonblocking(true).unwrap();
        place.unix.set_nonblocking(true).unwrap();
        place.datagram.set_nonblocking(true).unwrap();
        place.hidden.set_nonblocking(true).unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Every attempt of a worker, with its argument.
    fn attempts(&self) -> Vec<(&'static str, String)> {
        let parent = std::process::id().to_string();
        vec![
            ("read", "/etc/shadow".to_owned()),
            ("read", "/etc/passwd".to_owned()),
            ("read", self.path("dormouse.db")),
            ("climb", self.path("dormouse.db")),
            ("list", self.path("")),
            ("write", self.path("dormouse.db")),
            ("write", self.path("new")),
            ("write", "/new".to_owned()),
            ("write", "/tmp/dorm-worker-was-here".to_owned()),
            ("make", self.path("new")),
            ("make", "/new".to_owned()),
            ("proc", String::new()),
            ("tcp", self.tcp.local_addr().unwrap().to_string()),
            ("udp", self.udp.local_addr().unwrap().to_string()),
            ("unix", self.path("unix")),
            ("abstract", self.name.clone()),
            ("datagram", self.path("datagram")),
            ("signal", parent.clone()),
            ("trace", parent),
            ("fork", String::new()),
            ("mount", String::new()),
            ("root", String::new()),
            ("escape", String::new()),
            ("descriptors", String::new()),
            ("environment", String::new()),
        ]
    }

    fn assert_untouched(&self) {
        assert!(self.tcp.accept().is_err() && self.unix.accept().is_err() && self.hidden.accept().is_err());
        assert!(self.udp.recv(&mut [0]).is_err() && self.datagram.recv(&mut [0]).is_err());
        assert_eq!(fs::read_to_string(self.path("dormouse.db")).unwrap(), "records");
        let mut names: Vec<_> =
            fs::read_dir(self.directory.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["datagram", "dormouse.db", "unix"]);
        assert!(!Path::new("/tmp/dorm-worker-was-here").exists() && !Path::new("/new").exists());
    }
}

#[test]
fn what_a_worker_may_not_do_is_refused_without_the_filter_too() {
    let place = Place::new();
    for (name, argument) in place.attempts() {
        let said = answer(spawn("unfiltered", "attempt", &[name, &argument], LIMITS)).unwrap();
        assert!(said.starts_with("refused: "), "{name} {argument}: {said}");
    }
    place.assert_untouched();
}

#[test]
fn a_worker_that_calls_what_parsing_does_not_need_is_killed() {
    let place = Place::new();
    for (name, argument) in place.attempts() {
        // The first makes no system call, and the second only those that every program makes.
        if matches!(name, "environment" | "descriptors") {
            continue;
        }
        match answer(spawn("filtered", "attempt", &[name, &argument], LIMITS)) {
            Err(WorkerError::Ended { how, .. }) => assert!(how.contains("signal: 31"), "{name} {argument}: {how}"),
            other => panic!("{name} {argument}: {other:?}"),
        }
    }
    place.assert_untouched();
}

#[test]
fn a_worker_does_its_work() {
    let mut worker = spawn("filtered", "copy", &[], LIMITS);
    let (mut input, mut output) = (worker.input().unwrap(), worker.output().unwrap());
    let content: Vec<u8> = (0..(4 << 20)).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sent = content.clone();
    let sender = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let mut copied = Vec::new();
    output.read_to_end(&mut copied).unwrap();
    sender.join().unwrap();
    assert!(copied == content);
}

#[test]
fn a_worker_without_end_is_ended_by_its_limits_and_said_to_be() {
    let ended = |role, limits| match answer(spawn("filtered", role, &[], limits)).unwrap_err() {
        WorkerError::Ended { how, said, .. } => (how, said),
        other => panic!("{role}: {other}"),
    };
    // The limit on address space also limits resident memory.
    let (how, said) = ended("allocate", LIMITS);
    assert!(how.contains("signal") && said.contains("memory allocation"), "{how}: {said}");
    let (how, _) = ended("spin", Limits { cpu_seconds: 1, ..LIMITS });
    assert!(how.contains("signal: 9"), "{how}");
    let (how, said) = ended("panic", LIMITS);
    assert!(how.contains("exit status") && said.contains("attack at \\u{1b}[31mdawn"), "{how}: {said}");
}

#[test]
fn a_worker_that_is_silent_or_lies_is_an_error_and_gone() {
    let short = Limits { silence_seconds: 1, ..LIMITS };
    let mut worker = spawn("filtered", "hang", &[], short);
    let id = Pid::from_raw(worker.id().cast_signed()).unwrap();
    let _input = worker.input();
    let mut frames = Frames::new(worker.output().unwrap());
    assert_eq!(frames.next_frame().unwrap(), Some((1, 1)));
    let error = frames.next_frame().unwrap_err();
    assert!(matches!(worker.failed(error), WorkerError::Silent { seconds: 1, .. }));
    assert!(test_kill_process(id).is_err(), "it was waited for");
    let error = answer(spawn("filtered", "boast", &[], LIMITS)).unwrap_err();
    assert!(matches!(error, WorkerError::Message { .. }), "{error}");
    let error = answer(spawn("filtered", "no-such-role", &[], LIMITS)).unwrap_err();
    assert!(error.to_string().contains("no role 'no-such-role'"), "{error}");
}

#[test]
fn a_worker_that_is_killed_in_the_middle_is_an_error_that_says_so() {
    let mut worker = spawn("filtered", "hang", &[], LIMITS);
    let _input = worker.input();
    let mut frames = Frames::new(worker.output().unwrap());
    assert_eq!(frames.next_frame().unwrap(), Some((1, 1)));
    kill_process(Pid::from_raw(worker.id().cast_signed()).unwrap(), Signal::KILL).unwrap();
    let error = frames.next_frame().map(|frame| assert_eq!(frame, None));
    let error = worker.failed(error.err().unwrap_or(io::ErrorKind::UnexpectedEof.into()));
    assert!(error.to_string().contains("signal: 9"), "{error}");
}

#[test]
fn a_worker_that_is_dropped_is_killed_and_waited_for() {
    let mut worker = spawn("filtered", "hang", &[], LIMITS);
    let _input = worker.input();
    let id = Pid::from_raw(worker.id().cast_signed()).unwrap();
    drop(worker);
    assert!(test_kill_process(id).is_err());
}
