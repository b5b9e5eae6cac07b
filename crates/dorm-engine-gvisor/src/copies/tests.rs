//! The tests are the sandbox: they send what it sends, and what it must not.

use std::io::{IoSlice, Read as _, Seek as _};
use std::os::fd::AsFd;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};

use super::*;

/// A sandbox with some memory, and the file that its pages come to.
struct Sandbox {
    socket: OwnedFd,
    copies: Copies,
    memory: File,
    pages: File,
}

fn content(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
}

fn sandbox(memory_bytes: u64, limit: Option<u64>) -> Sandbox {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("pages");
    let pages = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    let direct = std::os::unix::fs::OpenOptionsExt::custom_flags(File::options().write(true), flags).open(&path).ok();
    let mut target = Pages::new(pages.try_clone().unwrap(), direct, memory_bytes).unwrap();
    target.limit = limit.unwrap_or(target.limit);
    let (copies, socket) = Copies::begin(target).unwrap();
    let memory = File::from(rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    memory.write_all_at(&content(memory_bytes), 0).unwrap();
    Sandbox { socket, copies, memory, pages }
}

impl Sandbox {
    fn say(&self, numbers: &[u64], descriptor: Option<&impl AsFd>) {
        let bytes: Vec<_> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.say_bytes(&bytes, descriptor);
    }

    fn say_bytes(&self, bytes: &[u8], descriptor: Option<&impl AsFd>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.iter().map(|file| file.as_fd()).collect();
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    /// Returns the answer to the sandbox, what the daemon has learned, and what is in the file.
    fn end(mut self) -> (Option<u8>, io::Result<Option<Copied>>, Vec<u8>) {
        let mut answer = [0];
        let received =
            rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty()).map_or(0, |(_, bytes)| bytes);
        let (answer, ended) = (answer.get(..received).and_then(<[u8]>::first).copied(), self.copies.end());
        let mut written = Vec::new();
        self.pages.rewind().unwrap();
        self.pages.read_to_end(&mut written).unwrap();
        (answer, ended, written)
    }
}

const MIB: u64 = 1 << 20;
const NO_FILE: Option<&File> = None;

#[test]
fn every_part_comes_where_the_sandbox_says() {
    for limit in [None, Some(0), Some(4 * MIB)] {
        let sandbox = sandbox(12 * MIB, limit);
        // The second half comes first, in uneven parts, over the border of direct I/O.
        let (half, odd) = (6 * MIB, 3 * MIB + 4096);
        sandbox.say(&[FROM_MEMORY, half, 0, odd, half + odd, odd, half - odd], Some(&sandbox.memory));
        sandbox.say(&[FROM_MEMORY, 0, half, half], NO_FILE);
        sandbox.say(&[END, 12 * MIB], NO_FILE);
        let (answer, ended, written) = sandbox.end();
        let memory = content(12 * MIB);
        let expected = [&memory[half as usize..], &memory[..half as usize]].concat();
        assert!(written == expected, "{limit:?}");
        let hash = limit.is_none().then(|| blake3::hash(&expected));
        assert_eq!((answer, ended.unwrap()), (Some(0), Some(Copied { hash })));
    }
}

#[test]
fn a_file_that_is_not_written_from_its_beginning_to_its_end_has_no_hash() {
    let whole = [FROM_MEMORY, 0, 0, 10 * MIB];
    for (numbers, is_known) in [
        (vec![whole.to_vec()], true),
        // A piece is missing, written again, or comes before the one in front of it.
        (vec![vec![FROM_MEMORY, 0, 0, 5 * MIB, 0, 6 * MIB, 4 * MIB]], false),
        (vec![vec![FROM_MEMORY, 0, MIB, 9 * MIB]], false),
        (vec![vec![FROM_MEMORY, 0, 0, 9 * MIB]], false),
        (vec![whole.to_vec(), vec![FROM_MEMORY, MIB, 0, 4096]], false),
        (vec![vec![FROM_MEMORY, 0, 0, 5 * MIB, MIB, 4 * MIB, 6 * MIB]], false),
        (vec![vec![FROM_MEMORY, MIB, MIB, MIB, 0, 0, MIB, 2 * MIB, 2 * MIB, 8 * MIB]], false),
    ] {
        let sandbox = sandbox(10 * MIB, None);
        for message in &numbers {
            sandbox.say(message, Some(&sandbox.memory));
        }
        sandbox.say(&[END, 10 * MIB], NO_FILE);
        let (answer, ended, written) = sandbox.end();
        let hash = is_known.then(|| blake3::hash(&written));
        assert_eq!((answer, ended.unwrap()), (Some(0), Some(Copied { hash })), "{numbers:?}");
    }
}

#[test]
fn the_pages_of_an_image_are_a_source_too() {
    let sandbox = sandbox(2 * MIB, None);
    let mut image = tempfile::tempfile_in("/var/tmp").unwrap();
    io::Write::write_all(&mut image, &[7; 3 << 20]).unwrap();
    sandbox.say(&[FROM_MEMORY, 0, 0, MIB], Some(&sandbox.memory));
    sandbox.say(&[FROM_IMAGE, MIB, MIB, 2 * MIB], Some(&image));
    sandbox.say(&[FROM_MEMORY, MIB, 3 * MIB, MIB], Some(&sandbox.memory));
    sandbox.say(&[END, 4 * MIB], NO_FILE);
    let (answer, ended, written) = sandbox.end();
    assert_eq!((answer, ended.is_ok_and(|copied| copied.is_some())), (Some(0), true));
    let memory = content(2 * MIB);
    let expected = [&memory[..MIB as usize], &[7; 2 << 20], &memory[MIB as usize..]].concat();
    assert!(written == expected);
}

#[test]
fn memory_that_is_not_there_is_an_error_and_never_zeros() {
    let sandbox = sandbox(2 * MIB, None);
    sandbox.say(&[FROM_MEMORY, MIB, 0, 2 * MIB], Some(&sandbox.memory));
    sandbox.say(&[END, 2 * MIB], NO_FILE);
    let (answer, ended, _) = sandbox.end();
    assert_eq!(answer, Some(1));
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_sandbox_that_gives_up_has_not_saved() {
    let sandbox = sandbox(2 * MIB, None);
    sandbox.say(&[FROM_MEMORY, 0, 0, MIB], Some(&sandbox.memory));
    let Sandbox { socket, copies, .. } = sandbox;
    drop(socket);
    assert_eq!(copies.end().unwrap(), None);
}

#[test]
fn a_sandbox_that_ends_its_save_and_keeps_the_socket_is_not_waited_for() {
    let sandbox = sandbox(2 * MIB, None);
    sandbox.say(&[FROM_MEMORY, 0, 0, MIB], Some(&sandbox.memory));
    let Sandbox { socket, copies, .. } = sandbox;
    assert_eq!(copies.end().unwrap(), None);
    drop(socket);
}

#[test]
fn a_save_that_is_dropped_ends_in_the_sandbox() {
    let Sandbox { socket, copies, .. } = sandbox(2 * MIB, None);
    drop(copies);
    let mut answer = [0];
    let (_, bytes) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()).unwrap();
    assert!(bytes == 0 || answer == [1], "no promise that anything is copied");
}

#[test]
fn what_a_sandbox_must_not_say_ends_its_save() {
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let null = File::open("/dev/zero").unwrap();
    let memory = sandbox(2 * MIB, None).memory;
    let refused: [(&[u64], Option<&dyn AsFd>); 12] = [
        (&[FROM_MEMORY, 0, 0, 4096], None),
        (&[9, 0, 0, 4096], Some(&memory)),
        (&[FROM_MEMORY, 0, 0, 4096], Some(&reader)),
        (&[FROM_MEMORY, 0, 0, 4096], Some(&null)),
        (&[FROM_MEMORY, 1, 0, 4096], Some(&memory)),
        (&[FROM_MEMORY, 0, 1, 4096], Some(&memory)),
        (&[FROM_MEMORY, 0, 0, 1], Some(&memory)),
        (&[FROM_MEMORY, 0, u64::MAX - 4095, 4096], Some(&memory)),
        (&[FROM_MEMORY, 0, 0, u64::MAX - 4095], Some(&memory)),
        (&[FROM_MEMORY, 0, 0], Some(&memory)),
        (&[END, u64::MAX - 4095], None),
        (&[END, 4095], None),
    ];
    for (numbers, descriptor) in refused {
        let sandbox = sandbox(2 * MIB, None);
        sandbox.say(numbers, descriptor.map(|file| file.as_fd()).as_ref());
        let (answer, ended, _) = sandbox.end();
        assert_eq!(answer, Some(1), "{numbers:?}");
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData, "{numbers:?}");
    }
    for bytes in [&b"short"[..], &[1; 12], &[0; MESSAGE_BYTES_MAX + 8]] {
        let sandbox = sandbox(2 * MIB, None);
        sandbox.say_bytes(bytes, Some(&sandbox.memory));
        assert_eq!(sandbox.end().1.unwrap_err().kind(), io::ErrorKind::InvalidData, "{} bytes", bytes.len());
    }
}

#[test]
fn a_sandbox_that_continues_after_a_failure_does_not_wait() {
    let sandbox = sandbox(2 * MIB, None);
    // The first part fails, and there is more than the socket and the threads hold.
    sandbox.say(&[FROM_MEMORY, 4 * MIB, 0, 4096], Some(&sandbox.memory));
    let many: Vec<u64> = std::iter::once(FROM_MEMORY).chain((0..3 * 1000).map(|_| 4096)).collect();
    let bytes: Vec<_> = many.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut sent = 0;
    while sent < 10_000 && send(&sandbox.socket, &bytes, SendFlags::NOSIGNAL).is_ok() {
        sent += 1;
    }
    assert!(sent < 10_000, "the daemon closes the socket");
    assert_eq!(sandbox.end().1.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn much_memory_is_not_written_through_the_page_cache() {
    const GIB: u64 = 1 << 30;
    assert_eq!(cached_bytes(300 * MIB, 24 * GIB), 300 * MIB);
    assert_eq!(cached_bytes(300 * MIB, 2 * GIB), 0);
    assert_eq!(cached_bytes(GIB + MIB, 1000 * GIB), 0);
    assert!(expected_bytes(GIB).is_multiple_of(PART_BYTES), "no part is written both ways");
}
