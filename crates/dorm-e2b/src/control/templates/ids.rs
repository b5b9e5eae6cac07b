//! Ids of builds as UUIDs, which clients of E2B require.
//!
//! An id of Dormouse is a number of 20 digits in base 36, which fits into the 122 free bits of a
//! UUID of version 8. An image is a build without an id: its UUID is the beginning of its digest.

use dorm_lifecycle::{BuildId, Digest};
use dorm_store::{TemplateSource, TemplateVersion};

/// The bits of a UUID that are its version and variant.
const FIXED: u128 = (0xf << 76) | (0x3 << 62);
/// Version 8 and the usual variant.
const VERSION: u128 = (0x8 << 76) | (0x2 << 62);
const DIGITS: u32 = 36;
const LENGTH: usize = 20;

/// The UUID of a build.
pub(super) fn of_build(id: &BuildId) -> String {
    of_id(id.as_str())
}

/// The UUID of what a tag stands for: of the build that made it, or else of its snapshot or image.
pub(super) fn of_version(version: &TemplateVersion) -> String {
    match (&version.build, &version.source) {
        (Some(build), _) => of_build(build),
        (None, TemplateSource::Snapshot(snapshot)) => of_id(snapshot.as_str()),
        (None, TemplateSource::Image(image)) => of_image(image),
    }
}

/// The UUID of an image.
pub(super) fn of_image(image: &Digest) -> String {
    let bits = image.as_str().get(..32).and_then(|digits| u128::from_str_radix(digits, 16).ok()).unwrap_or_default();
    written(bits & !FIXED | VERSION)
}

/// The build that has this UUID, if it is one of a build.
pub(super) fn build(text: &str) -> Option<BuildId> {
    let (mut number, digits) = (0_u128, text.bytes().filter(|byte| *byte != b'-'));
    let mut count = 0;
    for digit in digits {
        number = (number << 4) | u128::from(char::from(digit).to_digit(16)?);
        count += 1;
    }
    if count != 32 || number & FIXED != VERSION || written(number) != text.to_ascii_lowercase() {
        return None;
    }
    let mut number = (number & ((1 << 62) - 1)) | (number >> 2 & (((1 << 12) - 1) << 62)) | (number >> 6 & !0 << 74);
    let mut characters = [0; LENGTH];
    for character in characters.iter_mut().rev() {
        let digit = u32::try_from(number % u128::from(DIGITS)).ok()?;
        *character = u8::try_from(char::from_digit(digit, DIGITS)?).ok()?;
        number /= u128::from(DIGITS);
    }
    if number != 0 {
        return None;
    }
    std::str::from_utf8(&characters).ok()?.parse().ok()
}

fn of_id(id: &str) -> String {
    let digit = |character: char| u128::from(character.to_digit(DIGITS).unwrap_or_default());
    let number = id.chars().fold(0_u128, |number, character| number.wrapping_mul(36).wrapping_add(digit(character)));
    let low = number & ((1 << 62) - 1);
    let middle = (number & (((1 << 12) - 1) << 62)) << 2;
    let high = (number & (!0 << 74)) << 6;
    written(high | middle | low | VERSION)
}

fn written(bits: u128) -> String {
    let digits = format!("{bits:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_of_a_build_names_it_again() {
        for text in ["a0000000000000000000", "zzzzzzzzzzzzzzzzzzzz", "k3j9x2mq7w8ancdefghi", "azazazazazazazazaza9"] {
            let id: BuildId = text.parse().unwrap();
            let uuid = of_build(&id);
            assert_eq!(uuid.len(), 36, "{uuid}");
            assert_eq!((uuid.as_bytes()[14], &uuid[19..20]), (b'8', &uuid[19..20]), "{uuid}");
            assert!("89ab".contains(&uuid[19..20]), "{uuid}");
            assert_eq!(build(&uuid), Some(id.clone()), "{uuid}");
            assert_eq!(build(&uuid.to_uppercase()), Some(id));
        }
    }

    #[test]
    fn a_uuid_of_something_else_names_no_build() {
        let image: Digest = "f".repeat(64).parse().unwrap();
        let all = ["", "x", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-8fff-bfff-ffffffffffff"];
        for text in all.into_iter().chain([of_image(&image).as_str(), "00000000-0000-8000-8000-000000000000"]) {
            assert_eq!(build(text), None, "{text}");
        }
        assert_eq!(build(&of_build(&"a".repeat(20).parse().unwrap()).replace('-', "")), None);
    }
}
