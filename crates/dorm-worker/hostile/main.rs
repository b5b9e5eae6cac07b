//! A worker that behaves like an attacker's code: each role makes one attempt, and writes the
//! system's response. With `unfiltered`, it runs without limits and without the system call filter,
//! which would end it before any other layer could refuse.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods, unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::FromRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::process::{Command, ExitCode};

use dorm_worker::{Role, Sender, Work, confine};
use rustix::process::{Pid, Signal, kill_process};

type Attempt = fn(&str) -> io::Result<()>;

/// The attempts, each with one argument.
const ATTEMPTS: &[(&str, Attempt)] = &[
    ("read", |path| File::open(path).map(drop)),
    ("climb", |path| File::open(format!("../../../../../..{path}")).map(drop)),
    ("list", |path| fs::read_dir(path).map(|entries| assert_eq!(entries.count(), 0))),
    ("write", |path| OpenOptions::new().write(true).create(true).truncate(false).open(path).map(drop)),
    ("make", |path| fs::create_dir(path)),
    ("proc", |_| fs::read("/proc/self/status").map(drop)),
    ("tcp", |address| TcpStream::connect(address).map(drop)),
    ("udp", |address| UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", address).map(drop)),
    ("listen", |_| TcpListener::bind("127.0.0.1:0").map(drop)),
    ("unix", |path| UnixStream::connect(path).map(drop)),
    ("abstract", |name| UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(drop)),
    ("datagram", |path| UnixDatagram::unbound()?.send_to(b"x", path).map(drop)),
    ("signal", |id| Ok(kill_process(Pid::from_raw(id.parse().unwrap()).unwrap(), Signal::CONT)?)),
    ("trace", |id| {
        let done = unsafe { libc::ptrace(libc::PTRACE_ATTACH, id.parse::<i32>().unwrap(), 0, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }),
    ("fork", |_| Command::new("/bin/true").status().map(drop)),
    ("mount", |_| Ok(rustix::mount::mount("none", "/", "tmpfs", rustix::mount::MountFlags::empty(), None)?)),
    ("root", |_| Ok(rustix::thread::set_thread_uid(rustix::thread::Uid::ROOT)?)),
    ("escape", |_| {
        rustix::process::chroot(".")?;
        File::open("../../../../etc/passwd").map(drop)
    }),
    // Descriptors that the caller has open and did not pass on.
    ("descriptors", |_| {
        let open: Vec<i32> = (0..1024).filter(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0).collect();
        // Standard input, output and error, and the first two again.
        if open == [0, 1, 2, 3, 4] { Err(io::ErrorKind::NotFound.into()) } else { panic!("{open:?} are open") }
    }),
    ("environment", |_| match std::env::vars_os().next() {
        None => Err(io::ErrorKind::NotFound.into()),
        Some(variable) => panic!("{variable:?}"),
    }),
];

fn attempt(work: Work) -> io::Result<()> {
    let [name, argument] = &work.arguments[..] else { panic!("{:?}", work.arguments) };
    let (_, attempt) = ATTEMPTS.iter().find(|(known, _)| known == name).expect("an attempt");
    let said = match attempt(argument) {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("refused: {error}"),
    };
    let mut sender = Sender::new(work.output);
    sender.send(1, said.as_bytes())?;
    sender.flush()
}

fn copy(mut work: Work) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match work.input.read(&mut buffer)? {
            0 => return Ok(()),
            read => work.output.write_all(&buffer[..read])?,
        }
    }
}

/// Allocates memory and writes to it until there is no more.
fn allocate(_: Work) -> io::Result<()> {
    let mut all = Vec::new();
    loop {
        all.push(vec![1u8; 1 << 20]);
    }
}

fn spin(_: Work) -> io::Result<()> {
    loop {
        std::hint::spin_loop();
    }
}

/// Waits for input that never comes.
fn hang(mut work: Work) -> io::Result<()> {
    work.output.write_all(&[1, 0, 0, 0, 1, 9])?;
    work.input.read_to_end(&mut Vec::new()).map(drop)
}

/// Closes its output and continues.
fn close(mut work: Work) -> io::Result<()> {
    let (output, input) = (work.output, &mut work.input);
    drop(output);
    drop(unsafe { File::from_raw_fd(1) });
    input.read_to_end(&mut Vec::new()).map(drop)
}

fn panics(_: Work) -> io::Result<()> {
    panic!("attack at \x1b[31mdawn")
}

/// Announces a message of four gigabytes.
fn boast(mut work: Work) -> io::Result<()> {
    work.output.write_all(&[0xff, 0xff, 0xff, 0xff, 1])?;
    work.output.write_all(&[7; 4096])
}

const ROLES: &[Role] = &[
    Role::new("attempt", attempt),
    Role::new("copy", copy),
    Role::new("allocate", allocate),
    Role::new("spin", spin),
    Role::new("hang", hang),
    Role::new("close", close),
    Role::new("panic", panics),
    Role::new("boast", boast),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().expect("an argument") == "filtered" {
        return dorm_worker::run(arguments, &[ROLES]);
    }
    // Like a worker, without the last two layers.
    let all: Vec<String> = arguments.map(|argument| argument.into_string().expect("a text")).collect();
    let [_, _, user, rest @ ..] = &all[..] else { panic!("{all:?}") };
    confine::close_others().expect("closed");
    let input = File::from(rustix::io::dup(io::stdin()).expect("an input"));
    let output = File::from(rustix::io::dup(io::stdout()).expect("an output"));
    confine::isolate(user.parse().expect("a user")).expect("isolated");
    attempt(Work { arguments: rest.to_vec(), files: Vec::new(), input, output }).expect("an answer");
    ExitCode::SUCCESS
}
