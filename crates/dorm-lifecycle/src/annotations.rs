//! Annotations: notes that programs keep with a sandbox, each program in a part of its own.

use std::collections::BTreeMap;

use crate::spec_error::SpecError;

/// The largest total size of the annotations of a sandbox, names included, in bytes.
pub const ANNOTATIONS_BYTES_MAX: usize = 64 << 10;

/// The longest name of a program, and the longest key.
const NAME_MAX: usize = 128;

/// Annotations, by the name of the program that they belong to, then by key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Annotations(pub BTreeMap<String, BTreeMap<String, String>>);

impl Annotations {
    /// Rejects names and keys that are empty, too long or contain control characters, and more than
    /// [`ANNOTATIONS_BYTES_MAX`] in total.
    ///
    /// # Errors
    ///
    /// [`SpecError::Annotation`], [`SpecError::Resource`].
    pub fn check(&self) -> Result<(), SpecError> {
        let mut bytes = 0usize;
        for (program, entries) in &self.0 {
            for name in std::iter::once(program).chain(entries.keys()) {
                if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
                    return Err(SpecError::Annotation(name.clone()));
                }
                bytes += name.len();
            }
            bytes += entries.values().map(String::len).sum::<usize>();
        }
        match bytes <= ANNOTATIONS_BYTES_MAX {
            true => Ok(()),
            false => Err(SpecError::Resource {
                what: "the size of annotations",
                asked: bytes as u64,
                least: 0,
                most: ANNOTATIONS_BYTES_MAX as u64,
            }),
        }
    }

    /// Sets the annotations of a program that have a value, and removes the others. A program
    /// without any is forgotten.
    pub(crate) fn change(&mut self, program: &str, changes: &BTreeMap<String, Option<String>>) {
        let entries = self.0.entry(program.to_owned()).or_default();
        for (key, value) in changes {
            match value {
                Some(value) => entries.insert(key.clone(), value.clone()),
                None => entries.remove(key),
            };
        }
        if entries.is_empty() {
            self.0.remove(program);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(program: &str, key: &str, value: String) -> Annotations {
        Annotations([(program.to_owned(), [(key.to_owned(), value)].into())].into())
    }

    #[test]
    fn annotations_have_names_and_a_total_size() {
        assert_eq!(one("e2b", "template", "base".to_owned()).check(), Ok(()));
        assert_eq!(one("", "a", String::new()).check(), Err(SpecError::Annotation(String::new())));
        assert_eq!(one("e2b", "a\n", String::new()).check(), Err(SpecError::Annotation("a\n".to_owned())));
        assert_eq!(one("e2b", "a", "x".repeat(ANNOTATIONS_BYTES_MAX - 4)).check(), Ok(()));
        let large = one("e2b", "a", "x".repeat(ANNOTATIONS_BYTES_MAX));
        assert!(matches!(large.check(), Err(SpecError::Resource { .. })));
    }

    #[test]
    fn a_program_changes_only_its_own() {
        let mut annotations = one("e2b", "a", "1".to_owned());
        annotations.change("tensorlake", &[("a".to_owned(), Some("2".to_owned()))].into());
        annotations.change("e2b", &[("a".to_owned(), None), ("b".to_owned(), None)].into());
        assert_eq!(annotations, one("tensorlake", "a", "2".to_owned()));
    }
}
