//! The version of Go that compiled a program, read from the build information that Go's linker puts
//! into every program.
//!
//! Releases of gVisor from 2024 hard-code layouts of Go's runtime that changed in Go 1.25. Compiled
//! with a newer Go, they crash in half of their starts.

use std::fmt;

/// Where the build information begins. It is aligned to its 16 bytes of magic, pointer size and
/// flags.
const MAGIC: &[u8] = b"\xff Go buildinf:";
const ALIGNMENT: usize = 16;
/// Two strings follow the 32 bytes of the header, each after its length. Since Go 1.18 that is the
/// only form.
const HEADER_BYTES: usize = 32;
const FLAGS: usize = 15;
const STRINGS_FOLLOW: u8 = 2;

/// A version of Go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GoVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl GoVersion {
    /// The first version whose runtime differs from what releases of 2024 expect.
    pub(crate) const CHANGED: Self = Self { major: 1, minor: 25 };

    /// Returns the version of Go that compiled `program`; `None` if it is no program of Go.
    pub(crate) fn of_program(program: &[u8]) -> Option<Self> {
        // A program can also contain the magic as data of its own.
        program.chunks_exact(ALIGNMENT).enumerate().filter(|(_, chunk)| chunk.starts_with(MAGIC)).find_map(
            |(number, chunk)| {
                let is_inline = chunk[FLAGS] & STRINGS_FOLLOW != 0;
                let strings = program.get(number * ALIGNMENT + HEADER_BYTES..).filter(|_| is_inline)?;
                // Seven bits are enough for the length of a version.
                let (length, rest) = strings.split_first().filter(|(length, _)| **length < 0x80)?;
                Self::parse(std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?)
            },
        )
    }

    /// Parses `go1.22.12`, `go1.25rc1` or `go1.26-X:nogreenteagc`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix("go")?.split('.').map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part[..digits].parse().ok()
        });
        Some(Self { major: numbers.next()??, minor: numbers.next()?? })
    }
}

impl fmt::Display for GoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Go {}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with build information at byte 48, after the magic as data.
    fn program(flags: u8, version: &str) -> Vec<u8> {
        let mut bytes = vec![0; 17];
        bytes.extend_from_slice(MAGIC);
        bytes.resize(48, 0);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[8, flags]);
        bytes.resize(48 + HEADER_BYTES, 0);
        bytes.push(u8::try_from(version.len()).unwrap());
        bytes.extend_from_slice(version.as_bytes());
        bytes.extend_from_slice(b"\x05path\t");
        bytes
    }

    #[test]
    fn the_version_is_read_from_the_build_information() {
        for (text, minor) in [("go1.22.12", 22), ("go1.25rc1", 25), ("go1.26-X:nogreenteagc", 26), ("go1.24.4 X:x", 24)]
        {
            assert_eq!(GoVersion::of_program(&program(2, text)), Some(GoVersion { major: 1, minor }), "{text}");
        }
        assert!(GoVersion { major: 2, minor: 0 } > GoVersion::CHANGED && GoVersion::CHANGED.to_string() == "Go 1.25");
    }

    #[test]
    fn what_is_no_program_of_go_has_no_version() {
        assert_eq!(GoVersion::of_program(b"#!/bin/sh\n"), None);
        assert_eq!(GoVersion::of_program(&program(0, "go1.22.12")), None, "an older form");
        for text in ["", "1.22", "devel +abc", "go", "gox.y", "go1"] {
            assert_eq!(GoVersion::of_program(&program(2, text)), None, "{text}");
        }
        let whole = program(2, "go1.22.12");
        for length in 0..whole.len() {
            let cut = GoVersion::of_program(&whole[..length]);
            assert!(length > 88 || cut.is_none(), "{length}: {cut:?}");
        }
    }
}
