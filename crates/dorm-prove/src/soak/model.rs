//! The expected content of each area of memory of a guest: it follows from a seed and a number of
//! steps, as in `guest.py`.

use sha2::{Digest as _, Sha256};

const PAGE: usize = 4096;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The areas of a guest, in the order of its answers.
pub(super) const AREAS: [Area; 3] =
    [Area { name: "heap", mib: 32 }, Area { name: "file", mib: 8 }, Area { name: "shared", mib: 8 }];

/// An area of memory.
pub(super) struct Area {
    pub(super) name: &'static str,
    mib: usize,
}

impl Area {
    /// Returns the digest of the area after `steps` steps from `seed`.
    pub(super) fn digest(&self, seed: u64, steps: u64) -> String {
        let pages = (self.mib << 20) / PAGE;
        let mut words: Vec<Option<u64>> = vec![None; pages];
        let mut missing = pages;
        // The last step that fills a page counts.
        for step in (0..steps).rev() {
            let word = mixed(seed.wrapping_add(step.wrapping_mul(GOLDEN)));
            let place = usize::try_from(word % pages as u64).unwrap_or_default();
            if let Some(slot @ None) = words.get_mut(place) {
                *slot = Some(word);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        let mut hasher = Sha256::new();
        for word in words {
            hasher.update(word.unwrap_or_default().to_le_bytes().repeat(PAGE / 8));
        }
        hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The finalizer of `SplitMix64`.
fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_memory_is_zero_and_each_step_counts() {
        let area = Area { name: "small", mib: 1 };
        let zeros: String = Sha256::digest(vec![0; 1 << 20]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(area.digest(7, 0), zeros);
        let digests: Vec<String> = (0..4).map(|steps| area.digest(7, steps)).collect();
        assert!((1..4).all(|place| digests[place] != digests[place - 1]), "{digests:?}");
        assert_ne!(area.digest(8, 3), digests[3]);
    }
}
