//! Decides what a search finds.

use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::{Case, LINE_SHOWN, LineMatch, PATTERN_MAX, SearchSpec, Syntax};
use crate::Failure;
use crate::file::FileKind;
use crate::guest::{GuestBytes, GuestPath, legible};

/// The most memory of a compiled pattern, and of the states that are built while it matches.
const COMPILED_MAX: usize = 4 << 20;
/// How many bytes of a long line are shown before a match.
const SHOWN_BEFORE: usize = 128;

/// The compiled patterns of a search.
#[derive(Debug)]
pub struct Matcher {
    name: Option<NamePattern>,
    kind: Option<FileKind>,
    lines: Option<Regex>,
}

#[derive(Debug)]
struct NamePattern {
    glob: GlobMatcher,
    /// Whether it is compared with the path below the directory.
    has_slash: bool,
}

impl Matcher {
    /// Compiles the patterns of a search.
    ///
    /// # Errors
    /// [`Failure::Invalid`], with the mistake in the pattern.
    pub fn new(spec: &SearchSpec) -> Result<Self, Failure> {
        let case = spec.case == Case::Ignored;
        let name = spec.name.as_deref().map(|pattern| NamePattern::new(pattern, case)).transpose()?;
        let lines = spec.lines.as_ref().map(|lines| {
            check_length("the pattern", &lines.pattern)?;
            let escaped = match lines.syntax {
                Syntax::Regex => lines.pattern.clone(),
                Syntax::Literal => regex::escape(&lines.pattern),
            };
            let mut builder = RegexBuilder::new(&escaped);
            builder.case_insensitive(case).size_limit(COMPILED_MAX).dfa_size_limit(COMPILED_MAX);
            builder.build().map_err(|error| invalid(&format!("the pattern is not a regular expression: {error}")))
        });
        Ok(Self { name, kind: spec.kind, lines: lines.transpose()? })
    }

    /// Whether it is looked into files.
    pub fn wants_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Whether a file is a result, or is looked into. `below` is its path below the directory.
    pub fn takes(&self, below: &[u8], kind: FileKind) -> bool {
        if self.kind.is_some_and(|wanted| wanted != kind) || (self.wants_lines() && kind != FileKind::File) {
            return false;
        }
        self.name.as_ref().is_none_or(|name| {
            let own = below.rsplit(|byte| *byte == b'/').next().unwrap_or(below);
            name.glob.is_match(OsStr::from_bytes(if name.has_slash { below } else { own }))
        })
    }

    /// Returns the line with this number, without its end, if it is a result.
    pub fn line(&self, path: &GuestPath, number: u64, line: &[u8]) -> Option<LineMatch> {
        let at = self.lines.as_ref()?.find(line)?.start();
        let from = if at + SHOWN_BEFORE < LINE_SHOWN { 0 } else { at - SHOWN_BEFORE };
        let text = &line[from..line.len().min(from + LINE_SHOWN)];
        Some(LineMatch {
            path: path.clone(),
            line: number,
            at: at as u64,
            text: GuestBytes(text.to_vec()),
            text_at: from as u64,
            cut: text.len() < line.len(),
        })
    }
}

impl NamePattern {
    fn new(pattern: &str, ignores_case: bool) -> Result<Self, Failure> {
        check_length("the name", pattern)?;
        let has_slash = pattern.contains('/');
        let pattern = pattern.trim_start_matches("./").trim_start_matches('/');
        let glob = GlobBuilder::new(pattern).literal_separator(true).case_insensitive(ignores_case).build();
        let glob = glob.map_err(|error| invalid(&format!("the name is not a pattern: {error}")))?;
        Ok(Self { glob: glob.compile_matcher(), has_slash })
    }
}

fn check_length(what: &str, pattern: &str) -> Result<(), Failure> {
    match pattern.len() {
        0 => Err(invalid(&format!("{what} is empty"))),
        length if length > PATTERN_MAX => Err(invalid(&format!("{what} is longer than {PATTERN_MAX} bytes"))),
        _ => Ok(()),
    }
}

fn invalid(reason: &str) -> Failure {
    Failure::Invalid { reason: legible(reason) }
}

#[cfg(test)]
mod tests {
    use super::Matcher;
    use crate::file::FileKind;
    use crate::guest::GuestPath;
    use crate::search::{BinaryFiles, Case, LINE_SHOWN, LinePattern, SearchLimits, SearchSpec, Syntax};

    fn search(name: Option<&str>, pattern: Option<(&str, Syntax)>, case: Case) -> SearchSpec {
        SearchSpec {
            path: path(),
            depth: None,
            name: name.map(str::to_owned),
            kind: None,
            lines: pattern.map(|(pattern, syntax)| LinePattern {
                pattern: pattern.to_owned(),
                syntax,
                binary: BinaryFiles::Skip,
            }),
            case,
            limits: SearchLimits { results: 1, entries: 1, bytes: 1, time_ms: 1 },
        }
    }

    fn path() -> GuestPath {
        GuestPath::try_from("/w").unwrap()
    }

    #[test]
    fn a_name_is_that_of_the_file_unless_the_pattern_has_a_slash() {
        let takes = |pattern, below: &str, case| {
            Matcher::new(&search(Some(pattern), None, case)).unwrap().takes(below.as_bytes(), FileKind::File)
        };
        assert!(takes("*.rs", "a/b/c.rs", Case::Counts) && !takes("*.rs", "a.rs/c", Case::Counts));
        assert!(takes("a/*/c.rs", "a/b/c.rs", Case::Counts) && !takes("a/*.rs", "a/b/c.rs", Case::Counts));
        assert!(takes("a/**/*.{rs,toml}", "a/b/d/c.toml", Case::Counts));
        assert!(takes("*.RS", "c.rs", Case::Ignored) && !takes("*.RS", "c.rs", Case::Counts));
        let odd = Matcher::new(&search(Some("*.rs"), None, Case::Counts)).unwrap();
        assert!(odd.takes(b"\xff\xfe.rs", FileKind::File));
        for bad in ["", "a[", "{a"] {
            Matcher::new(&search(Some(bad), None, Case::Counts)).unwrap_err();
        }
    }

    #[test]
    fn a_line_is_shown_around_its_match() {
        let matcher = |pattern, syntax, case| Matcher::new(&search(None, Some((pattern, syntax)), case)).unwrap();
        let found = matcher("f.o", Syntax::Regex, Case::Ignored).line(&path(), 3, b"a FOO").unwrap();
        assert_eq!((found.line, found.at, found.text.0, found.cut), (3, 2, b"a FOO".to_vec(), false));
        assert!(matcher("f.o", Syntax::Literal, Case::Counts).line(&path(), 1, b"foo").is_none());
        assert!(matcher("^$", Syntax::Regex, Case::Counts).line(&path(), 1, b"").is_some());
        let long = [&b"\xff".repeat(5000)[..], b"needle", &b"y".repeat(5000)].concat();
        let found = matcher("needle", Syntax::Literal, Case::Counts).line(&path(), 1, &long).unwrap();
        assert_eq!((found.at, found.text.0.len(), found.cut), (5000, LINE_SHOWN, true));
        assert!(found.text.0[usize::try_from(found.at - found.text_at).unwrap()..].starts_with(b"needle"));
        for bad in ["", "(", "\\", "a{9999}{9999}"] {
            let spec = search(None, Some((bad, Syntax::Regex)), Case::Counts);
            Matcher::new(&spec).unwrap_err();
        }
    }
}
