//! The formats of memory images, by the releases of gVisor that write them.
//!
//! A build of a listed release can read the images of every other build of a release with the same
//! format, regardless of who compiled them. Only releases that were tested with each other and with
//! the reader of this crate are listed.

/// The releases whose images are known, each with the name of its format: the first release that
/// wrote it.
const RELEASES: &[(&str, &str)] = &[("20240729.0", "20240729.0")];

/// A known format of memory images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFormat(&'static str);

impl MemoryFormat {
    /// Returns the format of the images that a `runsc` of this version writes; `None` if it is not
    /// known. A version with changes that the release does not have, such as
    /// `release-20240729.0-12-gabcdef`, is unknown, except for the changes of Dormouse (`+dorm1`),
    /// which leave the format as it is.
    pub fn of_version(version: &str) -> Option<Self> {
        let release = version.strip_prefix("release-").or_else(|| version.strip_prefix("0.0~")).unwrap_or(version);
        let release = match release.split_once("+dorm") {
            Some((release, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
                release
            }
            Some(_) => return None,
            None => release,
        };
        RELEASES.iter().find(|(known, _)| *known == release).map(|(_, format)| Self(format))
    }

    /// Returns the name of the format: the first release that wrote it.
    pub fn name(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_builds_of_a_known_release_have_its_format() {
        for version in
            ["0.0~20240729.0", "release-20240729.0", "20240729.0", "0.0~20240729.0+dorm1", "20240729.0+dorm12"]
        {
            assert_eq!(MemoryFormat::of_version(version).map(MemoryFormat::name), Some("20240729.0"), "{version}");
        }
    }

    #[test]
    fn other_releases_and_other_changes_have_none() {
        for version in [
            "",
            "VERSION_MISSING",
            "0.0~20240729.1",
            "release-20240729.0-12-gabcdef",
            "0.0~20240729.0+dorm",
            "0.0~20240729.0+dorm1x",
            "0.0~20240729.0+other",
            "release-20260810.0",
        ] {
            assert_eq!(MemoryFormat::of_version(version), None, "{version}");
        }
    }
}
