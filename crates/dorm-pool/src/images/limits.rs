//! The limits of an import. Entries beyond them are rejected before they are written.

use super::node::Refusal;

/// The content that any source may have, however small it is.
const RATIO_FREE_BYTES: u64 = 1 << 30;
const GIB: u64 = 1 << 30;

/// The limits of one image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImportLimits {
    /// The number of files, directories and links, including skipped ones.
    pub entries: u64,
    /// The total length of all files. Holes count, since readers of the image read them.
    pub bytes: u64,
    /// The length of one file.
    pub file_bytes: u64,
    /// How many bytes one byte of a compressed source may expand to, beyond the first GiB.
    pub ratio: u64,
}

impl Default for ImportLimits {
    /// The largest images in use have about 60 GiB and half a million files, and compress to a
    /// third. gzip cannot exceed 1,032 to 1.
    fn default() -> Self {
        Self { entries: 2_000_000, bytes: 64 * GIB, file_bytes: 64 * GIB, ratio: 1000 }
    }
}

/// The amount that one import has brought so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Brought {
    entries: u64,
    bytes: u64,
    /// From the present source.
    from_source: u64,
    source_bytes: Option<u64>,
}

impl Brought {
    /// Begins another source of this many bytes; `None` if it is not compressed.
    pub(super) fn begin(&mut self, source_bytes: Option<u64>) {
        (self.from_source, self.source_bytes) = (0, source_bytes);
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Counts an entry.
    pub(super) fn entry(&mut self, limits: &ImportLimits) -> Result<(), Refusal> {
        self.entries += 1;
        if self.entries > limits.entries {
            let most = grouped(limits.entries);
            return Err(Refusal::because(format!("exceeds the limit of {most} entries (--image-entries-max)")));
        }
        Ok(())
    }

    /// Counts the content of an entry.
    pub(super) fn content(&mut self, bytes: u64, limits: &ImportLimits) -> Result<(), Refusal> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.from_source = self.from_source.saturating_add(bytes);
        if self.bytes > limits.bytes {
            let most = size(limits.bytes);
            return Err(Refusal::because(format!("would make the image larger than {most} (--image-mib-max)")));
        }
        if bytes > limits.file_bytes {
            let most = size(limits.file_bytes);
            return Err(Refusal::because(format!("is larger than {most} (--image-file-mib-max)")));
        }
        let most = |source: u64| RATIO_FREE_BYTES.saturating_add(source.saturating_mul(limits.ratio));
        if self.source_bytes.is_some_and(|source| self.from_source > most(source)) {
            let ratio = limits.ratio;
            let what = format!("is more than {ratio} times as large as its compressed form (--image-ratio-max)");
            return Err(Refusal::because(what));
        }
        Ok(())
    }
}

/// Returns a length in the largest unit that represents it exactly.
pub(super) fn size(bytes: u64) -> String {
    let units = [(GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = digits.get(..first).unwrap_or_default().to_owned();
    for group in digits.as_bytes().get(first..).unwrap_or_default().chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(std::str::from_utf8(group).unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!((grouped(7), grouped(999), grouped(2_000_000)), ("7".into(), "999".into(), "2,000,000".into()));
        assert_eq!((size(64 * GIB), size(3 << 20), size(5)), ("64 GiB".into(), "3 MiB".into(), "5 bytes".into()));
    }

    #[test]
    fn each_limit_has_a_refusal_that_names_its_option() {
        let limits = ImportLimits { entries: 1, bytes: 4 * GIB, file_bytes: 2 * GIB, ratio: 10 };
        let what = |refused: Result<(), Refusal>| refused.unwrap_err().what;
        let mut brought = Brought::default();
        brought.entry(&limits).unwrap();
        assert!(what(brought.entry(&limits)).contains("limit of 1 entries (--image-entries-max)"));
        brought.begin(Some(100 << 20));
        assert!(what(brought.content(2 * GIB + 1, &limits)).contains("larger than 2 GiB (--image-file-mib-max)"));
        let mut brought = Brought::default();
        brought.begin(Some(100 << 20));
        brought.content(GIB + (1000 << 20), &limits).unwrap();
        assert!(what(brought.content(1, &limits)).contains("more than 10 times"));
        // The ratio is counted per layer, the size per image.
        brought.begin(Some(1 << 30));
        brought.content(GIB, &limits).unwrap();
        assert!(what(brought.content(2 * GIB, &limits)).contains("larger than 4 GiB (--image-mib-max)"));
    }
}
