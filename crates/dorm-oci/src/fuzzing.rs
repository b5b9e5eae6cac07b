//! The entry points of the fuzzers: image references from users, and registries' unauthenticated
//! responses. Not part of any release build.

use crate::challenge::{self, Challenge};
use crate::reference::Reference;

/// Parses an image reference.
///
/// # Panics
/// When it could lead elsewhere, or changes when it is parsed again.
pub fn reference(text: &str) {
    let names = Reference::names_registry(text);
    match Reference::parse(text) {
        Ok(reference) => {
            let whole = reference.to_string();
            assert_eq!(Reference::parse(&whole).ok().as_ref(), Some(&reference), "{whole}");
            let path = format!("{}/{}", reference.host(), reference.repository);
            assert!(path.split('/').all(|part| !part.is_empty() && part != "." && part != ".."), "{path}");
            assert!(!path.contains(['?', '#', '@', '%', '\\', ' ', '\n', '\r']), "{path}");
            assert!(!reference.key().is_empty());
        }
        Err(error) => assert!(!names && error.to_string().len() < 64 * 1024, "{error}"),
    }
}

/// Parses a registry's request for authentication.
///
/// # Panics
/// When the result is longer than the input.
pub fn challenge(text: &str) {
    if let Some(Challenge::Bearer { realm, service, scope }) = challenge::parse(text) {
        let bytes = [Some(realm), service, scope].iter().flatten().map(String::len).sum::<usize>();
        assert!(bytes <= text.len());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_that_fuzzers_begin_with_pass() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/names");
        let mut count = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            let text = std::fs::read_to_string(seed.unwrap().path()).unwrap();
            super::reference(&text);
            super::challenge(&text);
            count += 1;
        }
        assert!(count > 0, "there are no seeds in {seeds}");
    }
}
