//! The plain BLAKE3 hash of a file from the hashes of its segments, which may be computed in any
//! order and by several threads.

use blake3::hazmat::{self, ChainingValue, Mode};

/// Returns the hash of a file of `bytes` bytes from the subtrees of its segments, in order. A
/// segment has `segment` bytes, which is a power of two and at least 1024; the last one may be
/// shorter. `None` if the file has another number of segments, or only one: that is no subtree.
pub fn hash_of_subtrees(subtrees: &[ChainingValue], bytes: u64, segment: u64) -> Option<blake3::Hash> {
    if subtrees.len() < 2 || bytes.div_ceil(segment) != subtrees.len() as u64 {
        return None;
    }
    let (left, right, left_bytes) = split(subtrees, bytes, segment);
    let left = merge(left, left_bytes, segment);
    let right = merge(right, bytes - left_bytes, segment);
    Some(hazmat::merge_subtrees_root(&left, &right, Mode::Hash))
}

/// Returns where BLAKE3 divides `bytes` bytes: the segments of the left and of the right subtree,
/// and the left one's bytes.
fn split(subtrees: &[ChainingValue], bytes: u64, segment: u64) -> (&[ChainingValue], &[ChainingValue], u64) {
    let left_bytes = hazmat::left_subtree_len(bytes);
    let at = usize::try_from(left_bytes / segment).unwrap_or(usize::MAX).min(subtrees.len());
    let (left, right) = subtrees.split_at(at);
    (left, right, left_bytes)
}

fn merge(subtrees: &[ChainingValue], bytes: u64, segment: u64) -> ChainingValue {
    if let [only] = subtrees {
        return *only;
    }
    let (left, right, left_bytes) = split(subtrees, bytes, segment);
    let left = merge(left, left_bytes, segment);
    let right = merge(right, bytes - left_bytes, segment);
    hazmat::merge_subtrees_non_root(&left, &right, Mode::Hash)
}
