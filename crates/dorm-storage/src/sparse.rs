//! Writes files in which runs of zeros are holes, which take no room on the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::room::{Meter, as_io};

/// A shorter run of zeros is written: small holes only fragment a file on the disk.
const RUN: usize = 64 << 10;
static ZEROS: [u8; RUN] = [0; RUN];

/// Writes one file from its beginning to its end.
pub(crate) struct SparseFile<'a> {
    file: &'a File,
    at: u64,
    /// The end of the last written byte.
    end: u64,
}

impl<'a> SparseFile<'a> {
    /// Creates a writer for `file`, which must be empty.
    pub(crate) fn new(file: &'a File) -> Self {
        Self { file, at: 0, end: 0 }
    }

    /// Adds bytes. Runs of zeros are found only if all calls except the last one pass a multiple of
    /// 64 KiB.
    pub(crate) fn add(&mut self, mut bytes: &[u8], meter: &mut Meter) -> io::Result<()> {
        while !bytes.is_empty() {
            let zeros: usize = bytes.chunks(RUN).take_while(|run| is_zero(run)).map(<[u8]>::len).sum();
            self.at += zeros as u64;
            bytes = bytes.get(zeros..).unwrap_or_default();
            let data: usize = bytes.chunks(RUN).take_while(|run| !is_zero(run)).map(<[u8]>::len).sum();
            let (now, later) = bytes.split_at(data);
            meter.charge_bytes(now.len() as u64).map_err(as_io)?;
            self.file.write_all_at(now, self.at)?;
            self.at += now.len() as u64;
            if !now.is_empty() {
                self.end = self.at;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Sets the length of the file if it ends with a hole.
    pub(crate) fn finish(self) -> io::Result<()> {
        if self.at > self.end { self.file.set_len(self.at) } else { Ok(()) }
    }
}

fn is_zero(run: &[u8]) -> bool {
    ZEROS.get(..run.len()) == Some(run)
}

/// Reads until `buffer` is full or the input ends; returns the number of bytes read.
pub(crate) fn read_full(from: &mut dyn io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(free) = buffer.get_mut(filled..).filter(|free| !free.is_empty()) {
        match from.read(free) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::room::Room;

    #[test]
    fn runs_of_zeros_take_no_room_and_everything_reads_back() {
        let place = tempfile::tempdir().unwrap();
        for (name, parts) in [
            ("begins", vec![(RUN * 5, 0), (3, 7)]),
            ("ends", vec![(5, 7), (RUN * 9 + 1, 0)]),
            ("within", vec![(RUN, 1), (RUN * 4, 0), (RUN + 9, 2)]),
            ("all", vec![(RUN * 3, 0)]),
            ("short", vec![(9, 0)]),
            ("empty", vec![]),
        ] {
            let content: Vec<u8> = parts.iter().flat_map(|(count, byte)| vec![*byte; *count]).collect();
            let file = File::create_new(place.path().join(name)).unwrap();
            let mut sparse = SparseFile::new(&file);
            let mut meter = Room::default().meter(place.path());
            for piece in content.chunks(RUN * 4) {
                sparse.add(piece, &mut meter).unwrap();
            }
            sparse.finish().unwrap();
            let mut read = Vec::new();
            File::open(place.path().join(name)).unwrap().read_to_end(&mut read).unwrap();
            assert!(read == content, "{name}");
            file.sync_all().unwrap();
            let runs = content.chunks(RUN).filter(|run| run.iter().any(|byte| *byte != 0)).count() as u64;
            assert!(file.metadata().unwrap().blocks() * 512 <= runs * RUN as u64, "{name}");
        }
    }
}
