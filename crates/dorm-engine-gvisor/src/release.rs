//! The facts that the version of a `runsc` build contains: `release-20240729.0`, or
//! `0.0~20240729.0` of Debian.

use dorm_memory_image::MemoryFormat;

/// Returns the version in the name of a build, which is `runsc VERSION DIGEST`.
fn version_of(build: &str) -> Option<&str> {
    build.strip_prefix("runsc ")?.rsplit_once(' ').map(|(version, _)| version)
}

/// Returns whether `build` has our changes.
pub(crate) fn is_ours(build: &str) -> bool {
    version_of(build).is_some_and(|version| version.contains("+dorm"))
}

/// Returns whether `build` can leave out of an image what an earlier image has, and restore such an
/// image: ours can since its second version.
pub(crate) fn has_bases(build: &str) -> bool {
    number_of(build).is_some_and(|number| number >= 2)
}

/// Returns whether `build` can save the files of a sandbox without its memory: ours can since its
/// fifth version.
pub(crate) fn saves_files_only(build: &str) -> bool {
    number_of(build).is_some_and(|number| number >= 5)
}

/// Returns whether `build` can leave copying pages to the daemon: ours can since its seventh
/// version.
pub(crate) fn leaves_copying(build: &str) -> bool {
    number_of(build).is_some_and(|number| number >= 7)
}

/// Returns whether a paused sandbox of `build` can map its memory from the image to which it was
/// saved: ours can since its tenth version.
pub(crate) fn maps_saved(build: &str) -> bool {
    number_of(build).is_some_and(|number| number >= 10)
}

/// Returns the number of our version of a build; `None` if it is not ours.
fn number_of(build: &str) -> Option<u32> {
    version_of(build)?.split_once("+dorm")?.1.parse().ok()
}

/// Returns the format of the memory images of `build`, such as one that a saved state names; `None`
/// if it is not known.
pub(crate) fn format_of(build: &str) -> Option<MemoryFormat> {
    MemoryFormat::of_version(version_of(build)?)
}

/// Returns the release date in `version`, such as `2024-07-29`; `None` if it contains none.
pub(crate) fn released(version: &str) -> Option<String> {
    let mut runs = version.split(|letter: char| !letter.is_ascii_digit());
    let digits = runs.find(|run| run.len() == 8)?;
    let (year, rest) = digits.split_at_checked(4)?;
    let (month, day) = rest.split_at_checked(2)?;
    let is_within = |text: &str, least, most| text.parse::<u16>().is_ok_and(|number| (least..=most).contains(&number));
    // gVisor was first published in 2018.
    let is_day = is_within(year, 2018, 2999) && is_within(month, 1, 12) && is_within(day, 1, 31);
    is_day.then(|| format!("{year}-{month}-{day}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_is_read_out_of_any_kind_of_version() {
        for version in ["release-20240729.0", "0.0~20240729.0", "release-20240729.0-12-gabcdef", "x 20240729"] {
            assert_eq!(released(version).as_deref(), Some("2024-07-29"), "{version}");
        }
    }

    #[test]
    fn builds_of_one_release_have_one_format_whatever_their_digests() {
        let format = |build| format_of(build).map(MemoryFormat::name);
        for build in ["runsc 0.0~20240729.0 0123456789abcdef", "runsc release-20240729.0 fedcba9876543210"] {
            assert_eq!(format(build), Some("20240729.0"), "{build}");
        }
        for build in ["", "20240729.0", "runsc 20240729.0", "fake-1", "runsc release-20260810.0 0123456789abcdef"] {
            assert_eq!(format(build), None, "{build}");
        }
    }

    #[test]
    fn only_our_later_builds_leave_out_what_an_earlier_image_has() {
        for (build, expected) in [
            ("runsc 0.0~20240729.0+dorm2 0123456789abcdef", true),
            ("runsc 0.0~20240729.0+dorm12 0123456789abcdef", true),
            ("runsc 0.0~20240729.0+dorm1 0123456789abcdef", false),
            ("runsc 0.0~20240729.0 0123456789abcdef", false),
            ("runsc 0.0~20240729.0+dorm2x 0123456789abcdef", false),
            ("fake-1", false),
        ] {
            assert_eq!(has_bases(build), expected, "{build}");
        }
    }

    #[test]
    fn only_our_later_builds_write_files_without_memory() {
        for (build, expected) in [
            ("runsc 0.0~20240729.0+dorm5 0123456789abcdef", true),
            ("runsc 0.0~20240729.0+dorm12 0123456789abcdef", true),
            ("runsc 0.0~20240729.0+dorm4 0123456789abcdef", false),
            ("runsc 0.0~20240729.0 0123456789abcdef", false),
            ("fake-1", false),
        ] {
            assert_eq!(saves_files_only(build), expected, "{build}");
        }
    }

    #[test]
    fn only_our_later_builds_leave_copying_to_the_daemon() {
        for (build, expected) in [
            ("runsc 0.0~20240729.0+dorm7 0123456789abcdef", true),
            ("runsc 0.0~20240729.0+dorm6 0123456789abcdef", false),
            ("runsc 0.0~20240729.0 0123456789abcdef", false),
            ("fake-1", false),
        ] {
            assert_eq!(leaves_copying(build), expected, "{build}");
        }
    }

    #[test]
    fn only_our_later_builds_map_what_they_have_saved() {
        for (build, expected) in [
            ("runsc 0.0~20240729.0+dorm10 0123456789abcdef", true),
            ("runsc 0.0~20240729.0+dorm9 0123456789abcdef", false),
            ("runsc 0.0~20240729.0 0123456789abcdef", false),
            ("fake-1", false),
        ] {
            assert_eq!(maps_saved(build), expected, "{build}");
        }
    }

    #[test]
    fn what_names_no_day_has_none() {
        for version in ["", "VERSION_MISSING", "1.2.3", "release-20241329.0", "12345678", "202407290"] {
            assert_eq!(released(version), None, "{version}");
        }
    }
}
