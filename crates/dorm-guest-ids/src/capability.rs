//! File capabilities, the value of `security.capability`, bound to the range.
//!
//! The kernel knows two forms. Revision 2 gives its capabilities to every user who executes the
//! file on the host; revision 3 names the host id that is root of a user namespace, and gives them
//! only in that namespace. Files of guests may only have the second form, with the base of the
//! range: for all other users they have no effect.

use crate::GuestIds;

/// The name of the attribute.
pub const NAME: &str = "security.capability";

const REVISION: u32 = 0xff00_0000;
const REVISION_2: u32 = 0x0200_0000;
const REVISION_3: u32 = 0x0300_0000;
const BYTES_2: usize = 20;
const BYTES_3: usize = 24;

/// The value for a file on the host; `None` if it cannot be bound to the range.
pub fn bound(value: &[u8], ids: GuestIds) -> Option<Vec<u8>> {
    let (magic, root) = parts(value)?;
    // Root of the host, or a value without a root: the image means its own root. No other id is a
    // user of the image.
    if root.is_some_and(|root| root != 0 && root != ids.base()) {
        return None;
    }
    let mut bound = ((magic & !REVISION) | REVISION_3).to_le_bytes().to_vec();
    bound.extend(value.get(4..BYTES_2)?);
    bound.extend(ids.base().to_le_bytes());
    Some(bound)
}

/// The value for guests, digests and archives: revision 2 if it is bound to the range, otherwise
/// unchanged.
pub fn unbound(value: Vec<u8>, ids: GuestIds) -> Vec<u8> {
    match (parts(&value), value.get(4..BYTES_2)) {
        (Some((magic, Some(root))), Some(capabilities)) if root == ids.base() => {
            [&((magic & !REVISION) | REVISION_2).to_le_bytes(), capabilities].concat()
        }
        _ => value,
    }
}

/// The first word, and the root id of revision 3; `None` if it has neither form.
fn parts(value: &[u8]) -> Option<(u32, Option<u32>)> {
    let word = |at: usize| Some(u32::from_le_bytes(value.get(at..at + 4)?.try_into().ok()?));
    let magic = word(0)?;
    match (magic & REVISION, value.len()) {
        (REVISION_2, BYTES_2) => Some((magic, None)),
        (REVISION_3, BYTES_3) => Some((magic, Some(word(BYTES_2)?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cap_setuid+ep` in revision 2.
    const SETUID: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn of_root(root: u32) -> Vec<u8> {
        let mut value = SETUID.to_vec();
        value[3] = 3;
        value.extend(root.to_le_bytes());
        value
    }

    #[test]
    fn a_value_of_the_host_becomes_one_of_the_range_and_back() {
        let ids = GuestIds::DEFAULT;
        assert_eq!(bound(&SETUID, ids), Some(of_root(ids.base())));
        assert_eq!(bound(&of_root(0), ids), Some(of_root(ids.base())));
        assert_eq!(bound(&of_root(ids.base()), ids), Some(of_root(ids.base())));
        assert_eq!(unbound(of_root(ids.base()), ids), SETUID);
        assert_eq!(unbound(SETUID.to_vec(), ids), SETUID, "what an earlier version has written");
    }

    #[test]
    fn a_value_of_another_root_or_without_form_is_not_bound() {
        let ids = GuestIds::DEFAULT;
        let revision_1 = [1, 0, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 0];
        let long = [&SETUID[..], &[0; 4]].concat();
        for value in [&of_root(1000)[..], &of_root(100_000), &revision_1, &long, &SETUID[..19], b""] {
            assert_eq!(bound(value, ids), None, "{value:?}");
        }
        assert_eq!(unbound(of_root(1000), ids), of_root(1000));
    }
}
