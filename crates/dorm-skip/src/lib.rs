//! The one way in which a test may end without having tried anything.
//!
//! A host may lack what a test needs. Such a test fails, unless `DORM_ALLOW_SKIP` names it: a test
//! that passes has tried what its name says. `cargo xtask test` allows those in
//! `.config/skips.txt`, each with its reason.

/// Names of tests that may be skipped, separated by commas.
pub const ALLOWED: &str = "DORM_ALLOW_SKIP";

/// Ends the test that calls it, which needs what this host lacks: it returns when the test may be
/// skipped.
///
/// # Panics
/// When it may not.
#[allow(clippy::panic)]
pub fn skip(reason: impl std::fmt::Display) {
    let name = test_name();
    let allowed = std::env::var(ALLOWED).unwrap_or_default();
    if is_allowed(&name, &allowed) {
        eprintln!("SKIPPED {name}: {reason}");
        return;
    }
    panic!("this host cannot run {name}: {reason}. Name it in {ALLOWED} to skip it");
}

/// The test's name: the one that this process was started for, else that of its thread.
fn test_name() -> String {
    let mut arguments = std::env::args().skip(1);
    let is_one = arguments.any(|argument| argument == "--exact");
    let named = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).filter(|_| is_one);
    named.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default()
}

fn is_allowed(name: &str, allowed: &str) -> bool {
    !name.is_empty() && allowed.split(',').any(|known| known.trim() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_that_is_named_may_be_skipped() {
        assert!(is_allowed("a::b", "c,a::b"));
        assert!(is_allowed("a::b", " a::b , c"));
        assert!(!is_allowed("a::b", ""));
        assert!(!is_allowed("a::b", "b,a"));
        assert!(!is_allowed("", ""));
        assert!(!is_allowed("", ",c"));
    }

    #[test]
    fn a_test_knows_its_name() {
        assert_eq!(test_name(), "tests::a_test_knows_its_name");
    }

    #[test]
    #[should_panic(expected = "there is no engine")]
    fn a_test_that_is_not_named_fails_instead_of_being_skipped() {
        skip("there is no engine");
    }
}
