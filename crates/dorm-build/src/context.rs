//! The files that steps copy from: a listing of a directory tree, and what a step selects of it.
//!
//! A listing may come from an archive that is not trusted. Its paths are only compared with each
//! other, never looked up on a disk, and links are followed only from entry to entry.

use std::collections::BTreeMap;
use std::ops::Bound;

use globset::{GlobBuilder, GlobMatcher};

use crate::BuildError;

/// How many links one path may lead through.
const LINKS_MAX: usize = 40;

/// One entry of a context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file.
    File(FileEntry),
    /// A symbolic link with this target.
    Link(String),
}

/// A file of a context.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileEntry {
    /// Its mode, without its type.
    pub mode: u32,
    /// Its length.
    pub bytes: u64,
    /// The BLAKE3 hash of its content.
    pub hash: [u8; 32],
    /// Where its content begins in the file with all contents.
    pub offset: u64,
}

/// All files that steps can copy, by their paths: relative, without `.` and `..`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Context {
    entries: BTreeMap<String, Entry>,
}

/// One entry to copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its path below the source that was given; empty for a file that was given itself.
    pub below: String,
    /// Its name, for a file that was given itself.
    pub name: String,
    /// The entry.
    pub entry: Entry,
}

/// All entries that one step copies, and their hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selected {
    /// The entries.
    pub found: Vec<Found>,
    /// A hash over names, modes and contents.
    pub hash: String,
    /// Whether the step names exactly one file.
    pub is_one_file: bool,
}

impl Context {
    /// Adds an entry; of several with one path, the last counts.
    ///
    /// # Errors
    /// If the path leads out of the context.
    pub fn insert(&mut self, path: &str, entry: Entry) -> Result<(), BuildError> {
        let path = inside(path)?;
        if !path.is_empty() {
            self.entries.insert(path, entry);
        }
        Ok(())
    }

    /// Adds directories that are missing above entries.
    ///
    /// # Errors
    /// If an entry is below something that is no directory.
    pub fn complete(&mut self) -> Result<(), BuildError> {
        let mut missing: BTreeMap<String, Entry> = BTreeMap::new();
        for path in self.entries.keys() {
            let mut above = path.as_str();
            while let Some((parent, _)) = above.rsplit_once('/') {
                match self.entries.get(parent) {
                    Some(Entry::Directory) => break,
                    Some(Entry::File(_) | Entry::Link(_)) => {
                        return Err(refused(format!("'{path}' is below '{parent}', which is not a directory")));
                    }
                    None => {
                        missing.insert(parent.to_owned(), Entry::Directory);
                    }
                }
                above = parent;
            }
        }
        self.entries.extend(missing);
        Ok(())
    }

    /// Returns all entries, in the order of their paths.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Returns the entry at a path.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Returns the entries that the sources of a copy name.
    ///
    /// # Errors
    /// If a source names nothing in the context.
    pub fn select(&self, from: &[String]) -> Result<Selected, BuildError> {
        let (mut found, mut named) = (Vec::new(), 0);
        for source in from {
            let path = inside(source)?;
            let paths = if has_pattern(&path) { self.matching(&path)? } else { vec![path] };
            for path in paths {
                named += 1;
                self.add(&path, &mut found)?;
            }
        }
        let is_one_file = named == 1 && found.len() == 1 && found.iter().all(|found| found.below.is_empty());
        Ok(Selected { hash: hash(&found), found, is_one_file })
    }

    fn add(&self, path: &str, found: &mut Vec<Found>) -> Result<(), BuildError> {
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        let link = self.entries.get(path).filter(|entry| matches!(entry, Entry::Link(_)));
        let whole = match (self.resolve(path), link) {
            (Ok(whole), _) => whole,
            // A context that was made for one step may have the link and not what it leads to.
            (Err(_), Some(link)) if self.entries.values().all(|entry| !matches!(entry, Entry::File(_))) => {
                found.push(Found { below: String::new(), name, entry: link.clone() });
                return Ok(());
            }
            (Err(error), _) => return Err(error),
        };
        if let Some(entry @ (Entry::File(_) | Entry::Link(_))) = self.entries.get(&whole) {
            found.push(Found { below: String::new(), name, entry: entry.clone() });
            return Ok(());
        }
        let prefix = if whole.is_empty() { String::new() } else { format!("{whole}/") };
        let begin = found.len();
        for (path, entry) in self.entries.range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded)) {
            let Some(below) = path.strip_prefix(&prefix) else { break };
            found.push(Found { below: below.to_owned(), name: String::new(), entry: entry.clone() });
        }
        if let Some(added) = found.get_mut(begin..) {
            added.sort_by(|one, other| one.below.split('/').cmp(other.below.split('/')));
        }
        Ok(())
    }

    /// Follows the links of a path, and returns the path of what it names.
    fn resolve(&self, path: &str) -> Result<String, BuildError> {
        let missing = || refused(format!("there is no '{path}' in the context"));
        let mut links = 0;
        let mut left: Vec<String> = parts(path);
        let mut at: Vec<String> = Vec::new();
        while let Some(part) = left.pop() {
            if part == ".." {
                let out = || refused(format!("'{path}' is a link out of the context: copy it into the context"));
                at.pop().ok_or_else(out)?;
                continue;
            }
            at.push(part);
            let whole = at.join("/");
            match self.entries.get(&whole) {
                None => return Err(missing()),
                Some(Entry::Link(target)) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(refused(format!("'{path}' leads through more than {LINKS_MAX} links")));
                    }
                    if target.starts_with('/') {
                        let what = format!("'{path}' is a link out of the context: copy it into the context");
                        return Err(refused(what));
                    }
                    at.pop();
                    left.extend(parts(target));
                }
                Some(Entry::File(_)) if !left.is_empty() => return Err(missing()),
                Some(Entry::File(_) | Entry::Directory) => {}
            }
        }
        Ok(at.join("/"))
    }

    /// Returns the paths that a pattern matches, in order.
    fn matching(&self, pattern: &str) -> Result<Vec<String>, BuildError> {
        let matcher = glob(pattern).map_err(|what| refused(format!("'{pattern}': {what}: give the paths instead")))?;
        let matching: Vec<String> = self.entries.keys().filter(|path| matcher.is_match(path)).cloned().collect();
        match matching.is_empty() {
            true => Err(refused(format!("nothing in the context matches '{pattern}'"))),
            false => Ok(matching),
        }
    }
}

/// Returns the matcher of a pattern in which `*` stands for any part of one name.
///
/// # Errors
/// What is wrong with the pattern.
pub fn glob(pattern: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}

fn refused(what: String) -> BuildError {
    BuildError::Step { what }
}

fn has_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Returns the parts of a path, the last first.
fn parts(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
}

/// Returns a path relative to the context, without `.` and `..`.
fn inside(path: &str) -> Result<String, BuildError> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => {
                let what = format!("'{path}' leads out of the context: copy only paths in it, or give another context");
                return Err(refused(what));
            }
            ".." => {}
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// Returns a hash of names, modes and contents.
fn hash(found: &[Found]) -> String {
    let mut hasher = blake3::Hasher::new();
    for Found { below, name, entry } in found {
        let mut field = |text: &[u8]| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text);
        };
        field(below.as_bytes());
        field(name.as_bytes());
        match entry {
            Entry::Directory => field(b"directory"),
            Entry::Link(target) => [b"link", target.as_bytes()].into_iter().for_each(field),
            Entry::File(FileEntry { mode, hash, .. }) => {
                field(b"file");
                field(&mode.to_le_bytes());
                field(hash);
            }
        }
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> Entry {
        let hash = *blake3::hash(content.as_bytes()).as_bytes();
        Entry::File(FileEntry { mode: 0o644, bytes: content.len() as u64, hash, offset: 0 })
    }

    fn context(entries: &[(&str, Entry)]) -> Context {
        let mut context = Context::default();
        for (path, entry) in entries {
            context.insert(path, entry.clone()).unwrap();
        }
        context.complete().unwrap();
        context
    }

    fn sources(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn a_directory_means_its_content_and_a_file_itself() {
        let context = context(&[("src/main.py", file("1")), ("src/lib/x", file("2")), ("top", file("3"))]);
        let selected = context.select(&sources(&["src", "./top"])).unwrap();
        let names: Vec<_> = selected.found.iter().map(|found| (&found.below[..], &found.name[..])).collect();
        assert_eq!(names, [("lib", ""), ("lib/x", ""), ("main.py", ""), ("", "top")]);
        assert!(!selected.is_one_file);
        assert!(context.select(&sources(&["top"])).unwrap().is_one_file);
        assert!(!context.select(&sources(&["src/lib"])).unwrap().is_one_file);
        assert_eq!(context.select(&sources(&["src/*.py"])).unwrap().found.len(), 1);
        assert_eq!(context.select(&sources(&["."])).unwrap().found.len(), 5);
    }

    #[test]
    fn links_are_followed_from_entry_to_entry_and_never_out() {
        let link = |target: &str| Entry::Link(target.to_owned());
        let context = context(&[
            ("real/file", file("1")),
            ("a/to-file", link("../real/file")),
            ("to-dir", link("real")),
            ("out", link("../secret")),
            ("absolute", link("/etc/passwd")),
            ("loop", link("loop")),
        ]);
        assert_eq!(context.select(&sources(&["a/to-file"])).unwrap().found[0].entry, file("1"));
        assert_eq!(context.select(&sources(&["to-dir/file"])).unwrap().found[0].entry, file("1"));
        for (path, word) in [("out", "out of the context"), ("absolute", "out of the context"), ("loop", "40 links")] {
            let error = context.select(&sources(&[path])).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        for path in ["../x", "real/../../x", "missing", "real/file/x", "*.none"] {
            assert!(context.select(&sources(&[path])).is_err(), "{path}");
        }
    }

    #[test]
    fn nothing_is_below_a_file_or_a_link() {
        for above in [file("1"), Entry::Link("x".to_owned())] {
            let mut context = Context::default();
            context.insert("a", above).unwrap();
            context.insert("a/b", file("2")).unwrap();
            assert!(context.complete().is_err());
        }
        assert!(Context::default().insert("../a", Entry::Directory).is_err());
    }

    #[test]
    fn names_modes_and_contents_are_in_the_hash() {
        let of = |entries: &[(&str, Entry)]| context(entries).select(&sources(&["."])).unwrap().hash;
        let mut executable = file("1");
        if let Entry::File(file) = &mut executable {
            file.mode = 0o755;
        }
        let all = [
            of(&[("a", file("1"))]),
            of(&[("b", file("1"))]),
            of(&[("a", file("2"))]),
            of(&[("a", executable)]),
            of(&[("a", Entry::Directory)]),
            of(&[("a", Entry::Link("1".to_owned()))]),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
