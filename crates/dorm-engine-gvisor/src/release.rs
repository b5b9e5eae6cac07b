//! The release date of a `runsc` build, parsed from its version: `release-20240729.0`, or
//! `0.0~20240729.0` of Debian.

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
    fn what_names_no_day_has_none() {
        for version in ["", "VERSION_MISSING", "1.2.3", "release-20241329.0", "12345678", "202407290"] {
            assert_eq!(released(version), None, "{version}");
        }
    }
}
