//! The directory that a build copies files from. Paths that `.dockerignore` excludes are not part
//! of it, and nothing outside of it is ever read, wherever links lead.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use crate::cli::problem::Problem;

const IGNORE: &str = ".dockerignore";

/// The context directory.
pub(super) struct Context {
    root: PathBuf,
    ignored: Vec<(GlobMatcher, Ignored)>,
}

/// The effect of a line of `.dockerignore` on the paths it matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ignored {
    Yes,
    No,
}

/// One entry to copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Its path below the source that was given; empty for a file that was given itself.
    pub(super) below: PathBuf,
    /// Its name, for a file that was given itself.
    pub(super) name: String,
    /// Its kind.
    pub(super) kind: Kind,
}

/// The kind of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Directory,
    File { path: PathBuf, mode: u32, bytes: u64 },
    Link(String),
}

/// All entries that one step copies, and their hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Files {
    pub(super) found: Vec<Found>,
    pub(super) hash: String,
    /// Whether the step names exactly one file.
    pub(super) is_one_file: bool,
}

impl Context {
    /// Opens an existing directory.
    pub(super) fn open(path: &Path) -> Result<Self, Problem> {
        let host = |error| Problem::host(format!("read the context {}", path.display()), &error);
        let root = fs::canonicalize(path).map_err(host)?;
        if !root.is_dir() {
            let message = format!("the context {} is not a directory", path.display());
            return Err(Problem::usage(message, "give the directory to copy files from"));
        }
        let text = match fs::read_to_string(root.join(IGNORE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            other => other.map_err(|error| Problem::host(format!("read {IGNORE}"), &error))?,
        };
        Ok(Self { root, ignored: ignored(&text)? })
    }

    /// Returns the entries that the source paths of one step name.
    pub(super) fn collect(&self, sources: &[String]) -> Result<Files, Problem> {
        let mut found = Vec::new();
        let mut named = 0;
        for source in sources {
            let source = inside(source)?;
            let paths = if has_pattern(&source) { self.matching(&source)? } else { vec![PathBuf::from(&source)] };
            for path in paths {
                named += 1;
                self.add(&path, &mut found)?;
            }
        }
        let is_one_file =
            named == 1 && found.len() == 1 && found.iter().all(|found| found.below.as_os_str().is_empty());
        Ok(Files { hash: hash(&found)?, found, is_one_file })
    }

    fn add(&self, relative: &Path, found: &mut Vec<Found>) -> Result<(), Problem> {
        let missing = || {
            let message = format!("there is no '{}' in the context {}", relative.display(), self.root.display());
            Problem::not_found(message, format!("give a path in it that {IGNORE} does not exclude"))
        };
        if self.is_ignored(relative) {
            return Err(missing());
        }
        let whole = match fs::canonicalize(self.root.join(relative)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
            other => other.map_err(|error| Problem::host(format!("read {}", relative.display()), &error))?,
        };
        if !whole.starts_with(&self.root) {
            let message = format!("'{}' is a link out of the context {}", relative.display(), self.root.display());
            return Err(Problem::usage(message, "copy it into the context"));
        }
        let name = relative.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !whole.is_dir() {
            found.push(Found { below: PathBuf::new(), name, kind: kind(&whole)? });
            return Ok(());
        }
        let mut left = vec![PathBuf::new()];
        while let Some(below) = left.pop() {
            let host = |error| Problem::host(format!("list {}", relative.join(&below).display()), &error);
            let mut names = Vec::new();
            for entry in fs::read_dir(whole.join(&below)).map_err(host)? {
                names.push(entry.map_err(host)?.file_name());
            }
            names.sort_unstable();
            for entry in names {
                let (below, path) = (below.join(&entry), whole.join(&below).join(&entry));
                let kind = kind(&path)?;
                let is_ignored = self.is_ignored(path.strip_prefix(&self.root).unwrap_or(&below));
                let is_directory = kind == Kind::Directory;
                if is_directory && (!is_ignored || self.ignored.iter().any(|(_, what)| *what == Ignored::No)) {
                    left.push(below.clone());
                }
                if !is_ignored {
                    found.push(Found { below, name: String::new(), kind });
                }
            }
        }
        found.sort_by(|a, b| a.below.cmp(&b.below));
        Ok(())
    }

    /// Returns the paths that a pattern matches, in order.
    fn matching(&self, pattern: &str) -> Result<Vec<PathBuf>, Problem> {
        let matcher =
            glob(pattern).map_err(|what| Problem::usage(format!("'{pattern}': {what}"), "give the paths instead"))?;
        let (mut left, mut matching) = (vec![PathBuf::new()], Vec::new());
        let depth = Path::new(pattern).components().count();
        while let Some(below) = left.pop() {
            let host = |error| Problem::host(format!("list {}", below.display()), &error);
            for entry in fs::read_dir(self.root.join(&below)).map_err(host)? {
                let entry = entry.map_err(host)?;
                let path = below.join(entry.file_name());
                if matcher.is_match(&path) && !self.is_ignored(&path) {
                    matching.push(path);
                } else if path.components().count() < depth && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push(path);
                }
            }
        }
        matching.sort_unstable();
        match matching.is_empty() {
            true => Err(Problem::not_found(
                format!("nothing in the context {} matches '{pattern}'", self.root.display()),
                "give existing paths",
            )),
            false => Ok(matching),
        }
    }

    /// Returns whether `.dockerignore` excludes a path or a directory above it, and does not
    /// include it again.
    fn is_ignored(&self, path: &Path) -> bool {
        let mut is_ignored = false;
        for (matcher, what) in &self.ignored {
            let named = path.ancestors().filter(|path| !path.as_os_str().is_empty()).any(|path| matcher.is_match(path));
            if named {
                is_ignored = *what == Ignored::Yes;
            }
        }
        is_ignored
    }
}

fn ignored(text: &str) -> Result<Vec<(GlobMatcher, Ignored)>, Problem> {
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (what, pattern) = match line.strip_prefix('!') {
            Some(pattern) => (Ignored::No, pattern.trim()),
            None => (Ignored::Yes, line),
        };
        let pattern = pattern.trim_start_matches("./").trim_matches('/');
        let matcher = glob(pattern).map_err(|error| {
            Problem::usage(format!("{IGNORE}, line {}: {error}", number + 1), "write a path, with * for any name")
        })?;
        all.push((matcher, what));
    }
    Ok(all)
}

fn glob(pattern: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
}

fn has_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Returns a source path of a step as a path relative to the context.
fn inside(path: &str) -> Result<String, Problem> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => {
                let message = format!("'{path}' leads out of the context");
                return Err(Problem::usage(message, "copy only paths in it, or give another context"));
            }
            ".." => {}
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

fn kind(path: &Path) -> Result<Kind, Problem> {
    let host = |error| Problem::host(format!("read {}", path.display()), &error);
    let unfit = |what: &str| Problem::usage(format!("{} {what}", path.display()), "add it to .dockerignore");
    let facts = fs::symlink_metadata(path).map_err(host)?;
    let has_name = path.file_name().is_none_or(|name| name.to_str().is_some());
    if !has_name {
        return Err(unfit("has a name that is not UTF-8"));
    }
    if facts.is_dir() {
        Ok(Kind::Directory)
    } else if facts.is_symlink() {
        let target = fs::read_link(path).map_err(host)?;
        target.to_str().map(|target| Kind::Link(target.to_owned())).ok_or_else(|| unfit("is a link that is not UTF-8"))
    } else if facts.is_file() {
        let mode = facts.permissions().mode() & 0o7777;
        Ok(Kind::File { path: path.to_owned(), mode, bytes: facts.size() })
    } else {
        Err(unfit("is not a file, directory or link"))
    }
}

/// Returns a hash of names, modes and contents.
fn hash(found: &[Found]) -> Result<String, Problem> {
    let mut hasher = blake3::Hasher::new();
    for Found { below, name, kind } in found {
        let mut field = |text: &[u8]| {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text);
        };
        field(below.as_os_str().as_encoded_bytes());
        field(name.as_bytes());
        match kind {
            Kind::Directory => field(b"directory"),
            Kind::Link(target) => [b"link", target.as_bytes()].into_iter().for_each(field),
            Kind::File { path, mode, .. } => {
                field(b"file");
                field(&mode.to_le_bytes());
                let host = |error| Problem::host(format!("read {}", path.display()), &error);
                let mut content = blake3::Hasher::new();
                content.update_reader(File::open(path).map_err(host)?).map_err(host)?;
                field(content.finalize().as_bytes());
            }
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests;
