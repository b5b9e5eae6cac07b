//! `listing`: the entries of the tree of a filesystem saved state, one line of JSON each, in the
//! order in which they were written: a directory before its entries. Every later version must be
//! able to read it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use dorm_engine::{Entry, EntryKind};
use serde::{Deserialize, Serialize};

/// One entry of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The entry.
    pub entry: Entry,
    /// The hash of a file's content: equal for equal content, where holes count as zeros.
    pub hash: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    path: String,
    kind: Kind,
    mode: u32,
    user: u32,
    group: u32,
    modified: (i64, u32),
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Kind {
    Directory { replaces: bool },
    File { bytes: u64, hash: String },
    Symlink { to: String },
    HardLink { of: String },
    Fifo,
    Removed,
}

/// Writes one line.
pub(super) fn write(to: &mut impl Write, Listed { entry, hash }: &Listed) -> std::io::Result<()> {
    let kind = match &entry.kind {
        EntryKind::Directory { replaces } => Kind::Directory { replaces: *replaces },
        EntryKind::File { bytes } => Kind::File { bytes: *bytes, hash: hash.clone().unwrap_or_default() },
        EntryKind::Symlink(to) => Kind::Symlink { to: text(to) },
        EntryKind::HardLink(of) => Kind::HardLink { of: text(of) },
        EntryKind::Fifo => Kind::Fifo,
        EntryKind::Removed => Kind::Removed,
    };
    let line = Line {
        path: text(&entry.path),
        kind,
        mode: entry.mode,
        user: entry.user,
        group: entry.group,
        modified: entry.modified,
        attributes: entry.attributes.iter().map(|(name, value)| (text(name), text(value))).collect(),
    };
    serde_json::to_writer(&mut *to, &line)?;
    to.write_all(b"\n")
}

/// Reads all lines. An error of the kind [`io::ErrorKind::InvalidData`] is a phrase about the
/// listing; others say nothing about its content.
pub(super) fn read(from: impl BufRead) -> io::Result<Vec<Listed>> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut all = Vec::new();
    for line in from.lines() {
        let line = line.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => invalid(format!("cannot be read ({error})")),
            _ => error,
        })?;
        let line: Line =
            serde_json::from_str(&line).map_err(|error| invalid(format!("cannot be understood ({error})")))?;
        all.push(understand(line).ok_or_else(|| invalid("has an escape that is none".to_owned()))?);
    }
    Ok(all)
}

fn understand(line: Line) -> Option<Listed> {
    let mut hash = None;
    let kind = match line.kind {
        Kind::Directory { replaces } => EntryKind::Directory { replaces },
        Kind::File { bytes, hash: of } => {
            hash = Some(of);
            EntryKind::File { bytes }
        }
        Kind::Symlink { to } => EntryKind::Symlink(bytes(&to)?),
        Kind::HardLink { of } => EntryKind::HardLink(bytes(&of)?),
        Kind::Fifo => EntryKind::Fifo,
        Kind::Removed => EntryKind::Removed,
    };
    let attributes = line.attributes.iter().map(|(name, value)| Some((bytes(name)?, bytes(value)?)));
    let entry = Entry {
        path: bytes(&line.path)?,
        kind,
        mode: line.mode,
        user: line.user,
        group: line.group,
        modified: line.modified,
        attributes: attributes.collect::<Option<_>>()?,
    };
    Some(Listed { entry, hash })
}

/// Encodes bytes as text: bytes that are not UTF-8, control characters and `%` become `%` and two
/// hexadecimal digits.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let escape = |out: &mut String, byte: u8| out.push_str(&format!("%{byte:02x}"));
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '%' || letter.is_control() {
                let mut buffer = [0; 4];
                letter.encode_utf8(&mut buffer).bytes().for_each(|byte| escape(&mut out, byte));
            } else {
                out.push(letter);
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut out, *byte));
    }
    out
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            out.push(*first);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_come_back(raw: Vec<u8>) {
            let text = text(&raw);
            prop_assert!(!text.chars().any(char::is_control));
            prop_assert_eq!(bytes(&text), Some(raw));
        }
    }

    #[test]
    fn a_broken_escape_is_refused() {
        assert_eq!((bytes("%4"), bytes("%zz"), bytes("%é")), (None, None, None));
    }
}
