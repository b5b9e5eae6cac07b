//! The bytes of a fuzzer, taken apart. Not part of any release build.

const BLOCK: usize = 512;

/// Removes the first byte and returns it; 0 if there is none.
pub(crate) fn first(data: &mut &[u8]) -> u8 {
    let Some((byte, rest)) = data.split_first() else { return 0 };
    *data = rest;
    *byte
}

/// Removes a part from the front and returns it. Its first two bytes give its length, which is
/// limited to the bytes available.
pub(crate) fn part<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let length = usize::from(u16::from_le_bytes([first(data), first(data)])).min(data.len());
    let (part, rest) = data.split_at(length);
    *data = rest;
    part
}

/// Corrects the checksums in the headers of a tar archive.
pub(crate) fn mended(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    let mut at = 0_usize;
    while let Some(head) = at.checked_add(BLOCK).and_then(|end| archive.get_mut(at..end)) {
        at += BLOCK;
        if head.iter().all(|byte| *byte == 0) {
            continue;
        }
        head[148..156].fill(b' ');
        let sum: u32 = head.iter().copied().map(u32::from).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let header = tar::Header::from_byte_slice(head);
        let bytes = header.entry_size().ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
        let Some(next) = bytes.checked_next_multiple_of(BLOCK).and_then(|bytes| at.checked_add(bytes)) else { break };
        at = next;
    }
    archive
}
