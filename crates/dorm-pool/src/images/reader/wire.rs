//! The messages of a worker about an archive. The daemon parses every path again, as if it had read
//! it from the archive itself.

use std::io;

use dorm_worker::{Fields, legible};

use crate::images::archive::link_target;
use crate::images::node::{GuestPath, Kind, Node, Refusal};

/// The kinds of frames.
pub(in crate::images) const ENTRY: u8 = 1;
/// A part of the content of the previous entry.
pub(in crate::images) const CONTENT: u8 = 2;
pub(in crate::images) const LEFT_OUT: u8 = 3;
/// Why nothing more follows.
pub(in crate::images) const WRONG: u8 = 4;
/// The position of a file in an archive.
pub(in crate::images) const PLACE: u8 = 5;
/// Another name of a file.
pub(in crate::images) const SAME: u8 = 6;
/// A boolean.
pub(in crate::images) const ANSWER: u8 = 7;
/// The end of the messages.
pub(in crate::images) const DONE: u8 = 8;

/// The maximum content of a frame.
pub(in crate::images) const CONTENT_MAX: usize = 256 << 10;
/// The maximum length of a `security.capability`, whose values have at most 24 bytes.
const CAPABILITY_MAX: usize = 64;
const NAME_MAX: usize = 64 << 10;

const DIRECTORY: u64 = 0;
const FILE: u64 = 1;
const SYMLINK: u64 = 2;
const HARD_LINK: u64 = 3;
const FIFO: u64 = 4;

pub(in crate::images) fn put_node(fields: &mut Fields, name: &str, node: &Node) {
    let shown = name.as_bytes();
    fields.put_bytes(shown.get(..shown.len().min(NAME_MAX)).unwrap_or_default());
    fields.put_bytes(node.path.as_bytes());
    let (kind, bytes, target): (u64, u64, &[u8]) = match &node.kind {
        Kind::Directory => (DIRECTORY, 0, b""),
        Kind::File(bytes) => (FILE, *bytes, b""),
        Kind::Symlink(target) => (SYMLINK, 0, target),
        Kind::HardLink(target) => (HARD_LINK, 0, target.as_bytes()),
        Kind::Fifo => (FIFO, 0, b""),
    };
    fields.put(kind);
    fields.put(bytes);
    fields.put_bytes(target);
    for number in [node.mode, node.user, node.group] {
        fields.put(number.into());
    }
    fields.put(node.modified.cast_unsigned());
    fields.put_bytes(node.capability.as_deref().unwrap_or_default());
}

/// Decodes an entry and its name in messages.
pub(in crate::images) fn node(fields: &mut Fields) -> io::Result<(String, Node)> {
    let refused = |refusal: Refusal| io::Error::new(io::ErrorKind::InvalidData, refusal.what);
    let name = legible(&fields.text()?);
    let path = GuestPath::parse(&fields.text()?).map_err(refused)?;
    let (kind, bytes, target) = (fields.number()?, fields.number()?, fields.text()?);
    let kind = match kind {
        DIRECTORY => Kind::Directory,
        FILE => Kind::File(bytes),
        SYMLINK => Kind::Symlink(link_target(target).map_err(refused)?),
        HARD_LINK => Kind::HardLink(GuestPath::parse(&target).map_err(refused)?),
        FIFO => Kind::Fifo,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "an entry has an unknown kind")),
    };
    let (mode, user, group) = (fields.small()?, fields.small()?, fields.small()?);
    let modified = fields.number()?.cast_signed();
    let capability = Some(fields.text()?).filter(|value| !value.is_empty());
    if capability.as_ref().is_some_and(|value| value.len() > CAPABILITY_MAX) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an entry has invalid capabilities"));
    }
    fields.end()?;
    Ok((name, Node { path, kind, mode, user, group, modified, capability }))
}

#[cfg(test)]
mod tests {
    use dorm_worker::Sender;

    use super::*;

    fn read(fields: &Fields) -> io::Result<(String, Node)> {
        node(&mut Fields::of(fields.as_bytes().to_vec()))
    }

    #[test]
    fn entries_come_back_as_they_were_sent_and_lies_do_not() {
        let path = |text: &str| GuestPath::parse(text.as_bytes()).unwrap();
        let entry = Node {
            path: path("usr/bin/su"),
            kind: Kind::File(77),
            mode: 0o4755,
            user: 1,
            group: 65_535,
            modified: -5,
            capability: Some(vec![1; 20]),
        };
        let sent = |name: &str, entry: &Node| {
            let mut fields = Fields::default();
            put_node(&mut fields, name, entry);
            fields
        };
        let (name, back) = read(&sent("./usr/bin/su", &entry)).unwrap();
        assert_eq!(
            (&name[..], &back.path, back.mode, back.user, back.group, back.modified, back.capability),
            ("./usr/bin/su", &entry.path, 0o4755, 1, 65_535, -5, entry.capability.clone())
        );
        assert!(matches!(back.kind, Kind::File(77)));
        let cut = sent("a", &entry).as_bytes().to_vec();
        for length in 0..cut.len() {
            assert!(node(&mut Fields::of(cut[..length].to_vec())).is_err(), "{length}");
        }
        let lies = [
            Node { kind: Kind::Symlink(vec![b'x'; 5000]), ..read(&sent("a", &entry)).unwrap().1 },
            Node { kind: Kind::Symlink(Vec::new()), ..read(&sent("a", &entry)).unwrap().1 },
            Node { capability: Some(vec![1; 4096]), ..read(&sent("a", &entry)).unwrap().1 },
        ];
        for lie in lies {
            assert!(read(&sent("a", &lie)).is_err());
        }
        let mut climbs = Fields::default();
        climbs.put_bytes(b"a");
        climbs.put_bytes(b"../../etc/shadow");
        assert!(read(&climbs).is_err());
    }

    #[test]
    fn messages_that_fuzzers_begin_with_pass() {
        const SEED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/told/archive");
        let path = |text: &str| GuestPath::parse(text.as_bytes()).unwrap();
        let node = |kind| Node { path: path("a"), kind, mode: 0, user: 0, group: 0, modified: 0, capability: None };
        let mut sent = vec![1];
        let mut sender = Sender::new(&mut sent);
        let mut fields = Fields::default();
        for kind in [Kind::File(3), Kind::HardLink(path("b/c")), Kind::Symlink(b"/d".to_vec())] {
            fields.clear();
            put_node(&mut fields, "./a", &node(kind));
            sender.send(ENTRY, fields.as_bytes()).unwrap();
        }
        sender.send(CONTENT, b"abc").unwrap();
        fields.clear();
        fields.put_bytes(b"dev/null");
        fields.put(0);
        sender.send(LEFT_OUT, fields.as_bytes()).unwrap();
        sender.send(DONE, b"").unwrap();
        sender.into_inner().unwrap();
        if std::env::var_os("DORM_REWRITE").is_some() {
            std::fs::write(SEED, &sent).unwrap();
        }
        assert_eq!(std::fs::read(SEED).unwrap(), sent, "the seed is stale: run this with DORM_REWRITE=1");
        crate::fuzzing::told(&sent[1..]);
    }
}
