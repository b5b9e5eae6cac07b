//! The `Range` header. A single range of bytes is supported; any other header is ignored and the
//! whole file is returned, as HTTP allows.

use axum::http::HeaderValue;

/// The byte range that a header asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// From this byte to the end.
    From(u64),
    /// From the first byte to the second, inclusive.
    Between(u64, u64),
    /// This many bytes at the end.
    Last(u64),
}

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its first byte.
    pub from: u64,
    /// Its length in bytes; `None` for the whole file, whatever its length.
    pub length: Option<u64>,
}

impl Part {
    /// The whole file.
    pub const WHOLE: Self = Self { from: 0, length: None };
}

impl Range {
    /// The part of a file of `size` bytes; `None` if the file has no such part.
    pub fn of(self, size: u64) -> Option<Part> {
        let (from, end) = match self {
            Self::From(from) => (from, size),
            Self::Between(from, to) => (from, size.min(to.saturating_add(1))),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (from < end).then(|| Part { from, length: Some(end - from) })
    }
}

/// Parses the header; `None` unless it is a single range of bytes.
pub fn parse(header: &HeaderValue) -> Option<Range> {
    let (from, to) = header.to_str().ok()?.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (from, to) {
        ("", count) => Some(Range::Last(count.parse().ok()?)),
        (from, "") => Some(Range::From(from.parse().ok()?)),
        (from, to) => {
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            (from <= to).then_some(Range::Between(from, to))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_names_a_part_of_the_file_or_nothing() {
        let part = |from, length| Some(Part { from, length: Some(length) });
        for (header, of_ten) in [
            ("bytes=0-", part(0, 10)),
            ("bytes=3-", part(3, 7)),
            ("bytes=3-5", part(3, 3)),
            ("bytes=3-99", part(3, 7)),
            ("bytes=-4", part(6, 4)),
            ("bytes=-40", part(0, 10)),
            ("bytes=10-", None),
            ("bytes=-0", None),
            ("bytes=0-18446744073709551615", part(0, 10)),
        ] {
            assert_eq!(parse(&HeaderValue::from_static(header)).unwrap().of(10), of_ten, "{header}");
        }
        for header in ["", "bytes", "bytes=", "bytes=-", "bytes=5-3", "bytes=0-1,3-4", "lines=0-1", "bytes=a-b"] {
            assert_eq!(parse(&HeaderValue::from_static(header)), None, "{header}");
        }
    }
}
