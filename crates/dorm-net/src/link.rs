//! Waits until an interface carries packets. The kernel finishes bringing a link up some time after
//! the command returns, and drops earlier packets: the first connection would then take a second.

use std::io;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const GET_FLAGS: Opcode = 0x8913;
const SET_FLAGS: Opcode = 0x8914;
const RUNNING: u16 = 0x40;
const NAME_SIZE: usize = 16;

/// A link that is not up by then is left as it is: it works as soon as it is up.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// The kernel's `struct ifreq`, as far as flags are concerned.
#[repr(C)]
struct Request {
    name: [u8; NAME_SIZE],
    flags: u16,
    rest: [u8; 22],
}

/// Waits for the interface in the namespace of the calling thread.
#[allow(clippy::disallowed_methods, reason = "the calling thread is its own: it has entered another namespace")]
pub(crate) fn settle(interface: &str) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = Request { name: [0; NAME_SIZE], flags: 0, rest: [0; 22] };
    let room = request.name.get_mut(..interface.len()).filter(|room| room.len() < NAME_SIZE);
    room.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(interface.as_bytes());
    let begun = Instant::now();
    loop {
        call::<GET_FLAGS>(&socket, &mut request)?;
        if request.flags & RUNNING != 0 || begun.elapsed() > LIMIT {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    // The flag is set just before the last step. Setting the same flags again changes nothing, but
    // waits for that step: both need the same lock in the kernel.
    call::<SET_FLAGS>(&socket, &mut request)
}

#[allow(unsafe_code)]
fn call<const OPCODE: Opcode>(socket: &OwnedFd, request: &mut Request) -> io::Result<()> {
    // SAFETY: both opcodes take a `struct ifreq`, whose layout and size `Request` has (40 bytes
    // with 64-bit pointers; with smaller ones it is larger than the kernel needs).
    Ok(unsafe { ioctl(socket, Updater::<OPCODE, Request>::new(request)) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        assert!(settle("dorm-not-there").is_err());
        assert_eq!(settle("a-name-that-is-too-long").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(settle("sixteen-letters-").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(size_of::<Request>(), 40);
    }
}
