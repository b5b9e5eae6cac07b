//! The keys under which the files that a step created are cached: a hash over everything that the
//! step depends on.

use std::fmt;

use crate::plan::{Command, Placed, Settings, Step};

/// The version of the key format. Changing it invalidates all cached results.
const VERSION: &str = "dormouse build step 2";

/// 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The keys of the steps of one build, in order.
#[derive(Clone, Debug)]
pub struct Keys(Key);

impl Keys {
    /// Begins a build with the image of this digest.
    pub fn begin(image: &str) -> Self {
        let mut hash = Hash::new("image");
        hash.text(image);
        Self(hash.key())
    }

    /// Returns the key of the next step, given the settings before it; `content` is a hash over the
    /// files of a copy, with their names and modes. `None` if the step changes no file: its
    /// settings are part of the keys of later steps.
    pub fn next(&mut self, placed: &Placed, before: &Settings, content: Option<&str>) -> Option<Key> {
        let mut hash = match &placed.step {
            Step::Run(_) => Hash::new("run"),
            Step::Copy(_) => Hash::new("copy"),
            Step::Env(..) | Step::Workdir(_) | Step::User(_) | Step::Entrypoint(_) | Step::Cmd(_) => return None,
        };
        hash.text(self.0.as_str());
        hash.text(before.0.user.as_deref().unwrap_or_default());
        match &placed.step {
            Step::Run(command) => {
                match command {
                    Command::Shell(line) => hash.all(["shell", line]),
                    Command::Login(line) => hash.all(["login", line, ""]),
                    Command::Argv(argv) => hash.all(argv),
                }
                hash.text(before.0.workdir.as_deref().unwrap_or_default());
                hash.all(before.0.env.iter().flat_map(|(name, value)| [name, value]));
                hash.all(placed.arguments.iter().flat_map(|(name, value)| [name, value]));
                hash.all(&before.0.workdir_owner);
            }
            Step::Copy(copy) => {
                hash.all(&copy.from);
                hash.text(&before.below(&copy.to));
                hash.text(if copy.to.ends_with('/') { "into" } else { "as" });
                hash.text(copy.owner.as_deref().unwrap_or_default());
                hash.text(&copy.mode.map(|mode| format!("{mode:o}")).unwrap_or_default());
                hash.text(content.unwrap_or_default());
            }
            Step::Env(..) | Step::Workdir(_) | Step::User(_) | Step::Entrypoint(_) | Step::Cmd(_) => {}
        }
        self.0 = hash.key();
        Some(self.0.clone())
    }

    /// Returns the key of the image that the build creates, given its final settings as text.
    pub fn finish(self, settings: &str) -> Key {
        let mut hash = Hash::new("end");
        hash.all([self.0.as_str(), settings]);
        hash.key()
    }
}

/// Hashes strings together with their lengths, so that their boundaries are unambiguous.
struct Hash(blake3::Hasher);

impl Hash {
    fn new(kind: &str) -> Self {
        let mut hash = Self(blake3::Hasher::new());
        hash.all([VERSION, kind]);
        hash
    }

    fn text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }

    fn all(&mut self, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        let texts: Vec<_> = texts.into_iter().collect();
        self.0.update(&(texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| self.text(text.as_ref()));
    }

    fn key(&self) -> Key {
        Key(self.0.finalize().to_hex().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Keys};
    use crate::from_dockerfile;
    use crate::plan::Settings;

    fn keys(text: &str, content: &str) -> Vec<Key> {
        let plan = from_dockerfile(text, &Default::default(), &Default::default()).unwrap();
        let (mut keys, mut settings, mut all) = (Keys::begin(&plan.from), Settings::default(), Vec::new());
        for placed in &plan.steps {
            all.extend(keys.next(placed, &settings, Some(content)));
            settings.apply(&placed.step).unwrap();
        }
        all
    }

    #[test]
    fn a_changed_step_changes_its_key_and_all_that_follow() {
        let old = keys("FROM a\nRUN one\nRUN two\nRUN three\n", "");
        let new = keys("FROM a\nRUN one\nRUN 2\nRUN three\n", "");
        let same: Vec<bool> = old.iter().zip(&new).map(|(old, new)| old == new).collect();
        assert_eq!(same, [true, false, false]);
    }

    #[test]
    fn everything_that_goes_into_a_step_is_in_its_key() {
        let all = [
            keys("FROM a\nRUN x\n", ""),
            keys("FROM b\nRUN x\n", ""),
            keys("FROM a\nRUN [\"x\"]\n", ""),
            keys("FROM a\nENV X=1\nRUN x\n", ""),
            keys("FROM a\nARG X=1\nRUN x\n", ""),
            keys("FROM a\nUSER u\nRUN x\n", ""),
            keys("FROM a\nWORKDIR /w\nRUN x\n", ""),
            keys("FROM a\nWORKDIR /w\nCOPY x y\n", "1"),
            keys("FROM a\nCOPY x y\n", "1"),
            keys("FROM a\nCOPY x y\n", "2"),
            keys("FROM a\nCOPY x y/\n", "1"),
            keys("FROM a\nCOPY x x y/\n", "1"),
        ];
        let last: std::collections::BTreeSet<_> = all.iter().map(|keys| keys.last().unwrap()).collect();
        assert_eq!(last.len(), all.len());
    }

    #[test]
    fn what_changes_no_file_has_no_key_of_its_own() {
        assert!(keys("FROM a\nENV X=1\nWORKDIR /w\nUSER u\nCMD [\"x\"]\n", "").is_empty());
    }
}
