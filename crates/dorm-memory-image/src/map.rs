//! The map of an image that leaves out memory which an earlier image has, its base.
//!
//! The pages of the memory files follow each other in a stream, in the order of `pages_meta.img`.
//! `pages_map.img` has entries of three numbers of 8 bytes, the lowest byte first. The first entry
//! identifies the pages of the base as a file of the host: its inode, its device, and its length.
//! Every other entry is a part of the stream that is in the base: the position in the stream, the
//! position in the base, and the length. `pages.img` has the other parts, one after the other. Only
//! private memory of processes is left out, never the content of a file. `dorm-runsc` writes such
//! images (`engines/gvisor-mapped/files/pkg/sentry/pgalloc/dorm_base.go`).

use std::fs::File;
use std::io::Read as _;

use crate::error::MemoryImageError;

/// A file of an image, and its length in bytes.
pub type OpenFile = (File, u64);

/// The map of an image that leaves out memory.
pub const PAGES_MAP: &str = "pages_map.img";
/// The pages of its base: the file `pages.img` of an earlier image.
pub const PAGES_BASE: &str = "pages_base.img";

const PIECE_BYTES: usize = 24;
/// The maximum size of a map, which is read at once. `dorm-runsc` has the same limit.
const MAP_BYTES_MAX: u64 = 64 << 20;

/// The map of an image; the default is that of an image that leaves out nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PagesMap {
    base: Option<BaseFile>,
    pieces: Vec<Piece>,
}

/// The pages of a base when the image was written: a file of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseFile {
    /// Its inode.
    pub inode: u64,
    /// The device of its file system.
    pub device: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    stream: u64,
    base: u64,
    length: u64,
    /// The length of all pieces before it.
    before: u64,
}

impl Piece {
    const fn end(&self) -> u64 {
        self.stream + self.length
    }
}

/// A part of the stream of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagesPart {
    /// Whether it is in the base instead of the image's own file.
    pub in_base: bool,
    /// Its position in that file.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl PagesMap {
    /// Reads a map.
    ///
    /// # Errors
    /// When it cannot be read, or is invalid.
    pub fn read((file, bytes): OpenFile) -> Result<Self, MemoryImageError> {
        if bytes > MAP_BYTES_MAX {
            return Err(MemoryImageError::unsound(format!("{PAGES_MAP} is too large")));
        }
        let mut text = Vec::new();
        file.take(bytes).read_to_end(&mut text).map_err(MemoryImageError::read(PAGES_MAP))?;
        Self::of_bytes(&text)
            .filter(|_| text.len() as u64 == bytes)
            .ok_or_else(|| MemoryImageError::unsound(format!("{PAGES_MAP} is not a list of parts in ascending order")))
    }

    fn of_bytes(text: &[u8]) -> Option<Self> {
        let (entries, []) = text.as_chunks::<PIECE_BYTES>() else { return None };
        let mut entries = entries.iter().filter_map(|entry| {
            let (numbers, _) = entry.as_chunks::<8>();
            let [first, second, third] = numbers else { return None };
            Some([first, second, third].map(|number| u64::from_le_bytes(*number)))
        });
        let Some([inode, device, bytes]) = entries.next() else { return Some(Self::default()) };
        let (mut map, mut end, mut before) = (Self::default(), 0, 0_u64);
        map.base = Some(BaseFile { inode, device, bytes });
        for [stream, base, length] in entries {
            if stream < end || length == 0 || base.checked_add(length)? > bytes {
                return None;
            }
            end = stream.checked_add(length)?;
            map.pieces.push(Piece { stream, base, length, before });
            before = before.checked_add(length)?;
        }
        Some(map)
    }

    /// Returns the pages of the base; `None` if the image leaves out nothing.
    pub fn base(&self) -> Option<BaseFile> {
        self.base
    }

    /// Returns how many bytes are left out.
    pub fn left_out_bytes(&self) -> u64 {
        self.pieces.last().map_or(0, |last| last.before + last.length)
    }

    /// Returns where the part of the stream at `offset` is, up to the next part of the other file.
    pub fn find(&self, offset: u64) -> PagesPart {
        let after = self.pieces.partition_point(|piece| piece.stream <= offset);
        let before = after.checked_sub(1).and_then(|index| self.pieces.get(index));
        if let Some(piece) = before.filter(|piece| offset < piece.end()) {
            let passed = offset - piece.stream;
            return PagesPart { in_base: true, offset: piece.base + passed, bytes: piece.length - passed };
        }
        let end = self.pieces.get(after).map_or(u64::MAX, |piece| piece.stream);
        let left_out = before.map_or(0, |piece| piece.before + piece.length);
        PagesPart { in_base: false, offset: offset - left_out, bytes: end - offset }
    }

    /// Returns the parts of a whole image whose own file has `own_bytes` bytes, in the order of the
    /// stream.
    pub fn parts(&self, own_bytes: u64) -> impl Iterator<Item = PagesPart> {
        let total = own_bytes.saturating_add(self.left_out_bytes());
        let mut at = 0;
        std::iter::from_fn(move || {
            let part = self.find(at);
            let part = PagesPart { bytes: part.bytes.min(total - at), ..part };
            at += part.bytes;
            (part.bytes > 0).then_some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: BaseFile = BaseFile { inode: 4, device: 5, bytes: 400 };

    fn map(pieces: &[[u64; 3]]) -> Option<PagesMap> {
        let base = [BASE.inode, BASE.device, BASE.bytes];
        let text: Vec<u8> = [base].iter().chain(pieces).flatten().flat_map(|number| number.to_le_bytes()).collect();
        PagesMap::of_bytes(&text)
    }

    #[test]
    fn every_part_is_found_in_the_file_that_has_it() {
        let map = map(&[[10, 100, 5], [15, 300, 5], [40, 7, 2]]).unwrap();
        let part = |in_base, offset, bytes| PagesPart { in_base, offset, bytes };
        assert_eq!((map.left_out_bytes(), map.base()), (12, Some(BASE)));
        assert_eq!(map.find(0), part(false, 0, 10));
        assert_eq!(map.find(12), part(true, 102, 3));
        assert_eq!(map.find(15), part(true, 300, 5));
        assert_eq!(map.find(25), part(false, 15, 15));
        assert_eq!(map.find(41), part(true, 8, 1));
        assert_eq!(map.find(42).offset, 30);
        let parts: Vec<_> = map.parts(33).collect();
        let whole = [
            part(false, 0, 10),
            part(true, 100, 5),
            part(true, 300, 5),
            part(false, 10, 20),
            part(true, 7, 2),
            part(false, 30, 3),
        ];
        assert_eq!(parts, whole);
    }

    #[test]
    fn an_empty_map_leaves_out_nothing() {
        let map = PagesMap::of_bytes(&[]).unwrap();
        assert_eq!((map.base(), map.left_out_bytes()), (None, 0));
        assert_eq!(map.parts(7).collect::<Vec<_>>(), [PagesPart { in_base: false, offset: 0, bytes: 7 }]);
        assert_eq!(map.parts(0).count(), 0);
    }

    #[test]
    fn an_invalid_map_is_refused() {
        for wrong in [
            &[[10, 0, 5], [14, 9, 1]][..],
            &[[10, 0, 5], [9, 9, 1]],
            &[[0, 0, 0]],
            &[[u64::MAX, 0, 2]],
            &[[0, u64::MAX, 2]],
            &[[0, 399, 2]],
        ] {
            assert_eq!(map(wrong), None, "{wrong:?}");
        }
        assert_eq!(PagesMap::of_bytes(&[0; 23]), None);
        assert_eq!(PagesMap::of_bytes(&[1; 25]), None);
    }
}
