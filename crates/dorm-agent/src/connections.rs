//! One thread moves the bytes of all connections to ports, in both directions.
//!
//! It waits only for the link. A connection whose host gives no credit is not read, and one whose
//! program does not read takes no more from the host; neither holds up the others.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use dorm_agent_proto::frame::PAYLOAD_MAX;
use dorm_agent_proto::{End, Failure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

use crate::call::Call;
use crate::channel::Received;
use crate::fault;
use crate::link::Gone;
use crate::lock::lock;
use crate::places::{Place, Places};

const CONNECTIONS_MAX: u32 = 1024;
/// How many frames of one connection are moved before the others get their turn.
const FRAMES_MAX: usize = 4;

/// The interface of other threads to the thread.
pub(crate) struct Connections {
    wake: OwnedFd,
    is_woken: AtomicBool,
    new: Mutex<Vec<Connection>>,
    places: Arc<Places>,
}

struct Connection {
    call: Call,
    socket: TcpStream,
    to_host: ToHost,
    from_host: FromHost,
    /// Bytes that the program has not accepted yet.
    rest: Vec<u8>,
    _place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ToHost {
    Open,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FromHost {
    Open,
    /// The program accepts no more. Bytes are received and dropped; the program's own end tells the
    /// host.
    Dropped,
    Ended,
}

/// How much of the bytes from the host was moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forwarded {
    /// All, or as much as the program accepts now.
    All,
    Some,
}

impl Connections {
    pub(crate) fn start_thread() -> io::Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let places = Places::new("connections to ports", CONNECTIONS_MAX);
        let connections = Arc::new(Self { wake, is_woken: AtomicBool::new(false), new: Mutex::default(), places });
        let shared = Arc::clone(&connections);
        thread::Builder::new().name("connections".to_owned()).spawn(move || {
            let mut open = Vec::new();
            let mut buffer = vec![0; PAYLOAD_MAX];
            loop {
                turn(&shared, &mut open, &mut buffer);
            }
        })?;
        Ok(connections)
    }

    /// Takes a place for a connection that is about to be opened.
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        self.places.take()
    }

    /// Forwards the bytes of a call and a socket that does not block.
    pub(crate) fn add(self: &Arc<Self>, call: Call, socket: TcpStream, place: Place) {
        let shared = Arc::clone(self);
        call.on_change(Arc::new(move || shared.wake()));
        let (to_host, from_host) = (ToHost::Open, FromHost::Open);
        lock(&self.new).push(Connection { call, socket, to_host, from_host, rest: Vec::new(), _place: place });
        self.wake();
    }

    fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // If the counter is full, it wakes anyway.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

fn turn(shared: &Connections, open: &mut Vec<Connection>, buffer: &mut [u8]) {
    open.append(&mut lock(&shared.new));
    let mut has_more = false;
    open.retain_mut(|connection| {
        let forwarded = connection.forward();
        has_more |= forwarded == Ok(Forwarded::Some);
        forwarded.is_ok() && !connection.is_over()
    });

    let mut descriptors = vec![PollFd::new(&shared.wake, PollFlags::IN)];
    let mut polled = Vec::new();
    for (number, connection) in open.iter().enumerate() {
        let wanted = connection.wanted();
        // One that waits for the host is left out: its end would be reported again and again.
        if !wanted.is_empty() {
            descriptors.push(PollFd::new(&connection.socket, wanted));
            polled.push(number);
        }
    }
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut descriptors, has_more.then_some(&at_once)).is_err() {
        return;
    }
    let ready: Vec<PollFlags> = descriptors.iter().map(PollFd::revents).collect();
    drop(descriptors);
    if ready.first().is_some_and(|ready| !ready.is_empty()) {
        let _ = rustix::io::read(&shared.wake, &mut [0_u8; 8]);
        // A change from here on wakes again.
        shared.is_woken.store(false, Ordering::Release);
    }
    for (number, ready) in polled.into_iter().zip(ready.into_iter().skip(1)) {
        if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            // A host that is gone is noticed in the next turn.
            let _ = open[number].backward(buffer);
        }
    }
}

impl Connection {
    fn is_over(&self) -> bool {
        self.to_host == ToHost::Ended && self.from_host == FromHost::Ended && self.rest.is_empty()
    }

    fn wanted(&self) -> PollFlags {
        let mut wanted = PollFlags::empty();
        if self.to_host == ToHost::Open && self.call.has_credit() == Ok(true) {
            wanted |= PollFlags::IN;
        }
        if !self.rest.is_empty() {
            wanted |= PollFlags::OUT;
        }
        wanted
    }

    /// Moves bytes from the host to the program, as far as it accepts them.
    fn forward(&mut self) -> Result<Forwarded, Gone> {
        self.call.has_credit()?;
        for _ in 0..FRAMES_MAX {
            self.write_rest();
            if !self.rest.is_empty() || self.from_host == FromHost::Ended {
                return Ok(Forwarded::All);
            }
            match self.call.try_receive()? {
                None => return Ok(Forwarded::All),
                Some(Received::Data(_)) if self.from_host == FromHost::Dropped => {}
                Some(Received::Data(data)) => self.rest = data,
                Some(Received::End(end)) => {
                    let side = if end == End::Complete { Shutdown::Write } else { Shutdown::Both };
                    drop(self.socket.shutdown(side));
                    self.from_host = FromHost::Ended;
                }
            }
        }
        Ok(Forwarded::Some)
    }

    fn write_rest(&mut self) {
        while !self.rest.is_empty() {
            match self.socket.write(&self.rest) {
                Ok(written) if written > 0 => drop(self.rest.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => {
                    self.rest = Vec::new();
                    self.from_host = FromHost::Dropped;
                }
            }
        }
    }

    /// Moves bytes from the program to the host, as far as it gives credit.
    fn backward(&mut self, buffer: &mut [u8]) -> Result<(), Gone> {
        for _ in 0..FRAMES_MAX {
            if self.to_host == ToHost::Ended || !self.call.has_credit()? {
                return Ok(());
            }
            let end = match self.socket.read(buffer) {
                Ok(0) => End::Complete,
                Ok(length) => {
                    self.call.data(&buffer[..length])?;
                    if length < buffer.len() {
                        return Ok(());
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => End::Failed(fault::other("read from", b"the connection", error)),
            };
            self.to_host = ToHost::Ended;
            self.call.end(&end)?;
        }
        Ok(())
    }
}
