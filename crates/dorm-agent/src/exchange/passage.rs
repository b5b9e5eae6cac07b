//! Passes descriptors out of a stopped process and into it, through a socket that it opens itself.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::held::{Held, HeldError};

/// The layout of the page that a stopped process allocates for this, as offsets in bytes.
const ADDRESS: usize = 0;
const BYTES: usize = 128;
const PIECES: usize = 144;
const MESSAGE: usize = 192;
const CONTROL: usize = 256;
const PAGE: usize = 4096;
const SECRET: usize = 16;

/// The length of the control data with one descriptor, and its padded length.
const CONTROL_BYTES: usize = 20;
const CONTROL_SPACE: usize = 24;

/// The socket to which stopped processes connect.
pub(super) struct Passage {
    listener: OwnedFd,
    name: Vec<u8>,
    /// Its secret, since its name is visible to every process.
    secret: [u8; SECRET],
}

/// The connection of one process.
pub(super) struct Crossing {
    socket: OwnedFd,
    /// Its descriptor number in the process.
    number: RawFd,
    /// The address of its page in the process.
    page: usize,
}

impl Passage {
    pub(super) fn new() -> io::Result<Self> {
        let (mut random, mut secret) = ([0; 16], [0; SECRET]);
        for bytes in [&mut random, &mut secret] {
            rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
        }
        let name: Vec<u8> = random.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new_abstract_name(&name)?)?;
        rustix::net::listen(&listener, 16)?;
        Ok(Self { listener, name, secret })
    }

    /// Makes a process connect.
    pub(super) fn open(&self, held: &mut Held) -> Result<Crossing, HeldError> {
        let page = held.call(
            "allocate memory",
            libc::SYS_mmap,
            [
                0,
                PAGE,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
                usize::MAX,
                0,
            ],
        )?;
        let connected = self.connect(held, page);
        if connected.is_err() {
            held.call("free memory", libc::SYS_munmap, [page, PAGE, 0, 0, 0, 0]).ok();
        }
        connected
    }

    fn connect(&self, held: &mut Held, page: usize) -> Result<Crossing, HeldError> {
        let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as usize;
        let number = held.call("open a socket", libc::SYS_socket, [libc::AF_UNIX as usize, kind, 0, 0, 0, 0])?;
        // The name of an abstract socket follows a zero byte.
        let mut address = u16::try_from(libc::AF_UNIX).unwrap_or_default().to_ne_bytes().to_vec();
        address.push(0);
        address.extend(&self.name);
        let met = held
            .write(page + ADDRESS, &address)
            .and_then(|()| held.call("connect", libc::SYS_connect, [number, page + ADDRESS, address.len(), 0, 0, 0]))
            .and_then(|_| held.write(page + BYTES, &self.secret))
            .and_then(|()| {
                let operands = [number, page + BYTES, SECRET, libc::MSG_DONTWAIT as usize, 0, 0];
                held.call("authenticate", libc::SYS_sendto, operands)
            })
            .and_then(|_| self.accept().map_err(HeldError::own("accept its connection")));
        match met {
            Ok(socket) => Ok(Crossing { socket, number: number as RawFd, page }),
            Err(error) => {
                held.call("close the socket", libc::SYS_close, [number, 0, 0, 0, 0, 0]).ok();
                Err(error)
            }
        }
    }

    /// Accepts the connection. The process has already connected and sent the secret; other
    /// connections are closed.
    fn accept(&self) -> io::Result<OwnedFd> {
        rustix::io::ioctl_fionbio(&self.listener, true)?;
        loop {
            let socket = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC)?;
            let mut said = [0; SECRET];
            if rustix::net::recv(&socket, &mut said, RecvFlags::DONTWAIT).is_ok() && said == self.secret {
                return Ok(socket);
            }
        }
    }
}

impl Crossing {
    /// Receives a descriptor of the process.
    pub(super) fn take(&self, held: &mut Held, descriptor: RawFd) -> Result<OwnedFd, HeldError> {
        self.prepare(held, descriptor)?;
        held.call("send a descriptor", libc::SYS_sendmsg, self.message())?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT);
        rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)
            .map_err(|error| HeldError::own("receive a descriptor")(error.into()))?;
        let taken = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        taken.ok_or_else(|| HeldError::own("receive a descriptor")(io::ErrorKind::UnexpectedEof.into()))
    }

    /// Replaces a descriptor of the process by `copy`.
    pub(super) fn give(&self, held: &mut Held, descriptor: RawFd, copy: &OwnedFd) -> Result<(), HeldError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let copies = [copy.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&copies));
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(b"x")], &mut control, SendFlags::DONTWAIT)
            .map_err(|error| HeldError::own("send it the copy")(error.into()))?;
        let place = descriptor as usize;
        let flags = held.call("read descriptor flags", libc::SYS_fcntl, [place, libc::F_GETFD as usize, 0, 0, 0, 0])?;
        self.prepare(held, -1)?;
        held.call("receive the copy", libc::SYS_recvmsg, self.message())?;
        let control = held.read(self.page + CONTROL, CONTROL_SPACE)?;
        let number = control.get(16..20).and_then(|bytes| bytes.try_into().ok()).map_or(-1, i32::from_ne_bytes);
        let number = usize::try_from(number)
            .map_err(|_| HeldError::own("receive the copy")(io::ErrorKind::UnexpectedEof.into()))?;
        let flags = if flags & libc::FD_CLOEXEC as usize == 0 { 0 } else { libc::O_CLOEXEC as usize };
        let put = held.call("replace a descriptor", libc::SYS_dup3, [number, place, flags, 0, 0, 0]);
        let closed = held.call("close a descriptor", libc::SYS_close, [number, 0, 0, 0, 0, 0]);
        put.and(closed).map(drop)
    }

    /// Restores the process.
    pub(super) fn close(self, held: &mut Held) {
        // A process that cannot do this any more has ended.
        held.call("close the socket", libc::SYS_close, [self.number as usize, 0, 0, 0, 0, 0]).ok();
        held.call("free memory", libc::SYS_munmap, [self.page, PAGE, 0, 0, 0, 0]).ok();
    }

    fn message(&self) -> [usize; 6] {
        [self.number as usize, self.page + MESSAGE, libc::MSG_DONTWAIT as usize, 0, 0, 0]
    }

    /// Prepares a message of one byte with space for one descriptor.
    fn prepare(&self, held: &mut Held, descriptor: RawFd) -> Result<(), HeldError> {
        held.write(self.page + PIECES, &words(&[self.page + BYTES, 1]))?;
        // Address and its length, pieces, control data, flags.
        let message = [0, 0, self.page + PIECES, 1, self.page + CONTROL, CONTROL_SPACE, 0];
        held.write(self.page + MESSAGE, &words(&message))?;
        let mut control = words(&[CONTROL_BYTES]);
        for part in [libc::SOL_SOCKET, libc::SCM_RIGHTS, descriptor, 0] {
            control.extend(part.to_ne_bytes());
        }
        held.write(self.page + CONTROL, &control)
    }
}

fn words(words: &[usize]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
