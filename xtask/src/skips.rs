//! Checks which tests may be skipped, and that none is skipped in another way: `.config/skips.txt`
//! and `dorm-skip`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Returns the names of the tests that may be skipped, in the form of `DORM_ALLOW_SKIP`.
pub(crate) fn allowed(root: &Path) -> Result<String> {
    let path = root.join(".config/skips.txt");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((name, reason)) = line.split_once('#') else {
            bail!("{}: '{line}' gives no reason: write NAME # REASON", path.display());
        };
        if reason.trim().is_empty() {
            bail!("{}: '{line}' gives no reason: write NAME # REASON", path.display());
        }
        names.push(name.trim().to_owned());
    }
    Ok(names.join(","))
}

/// Returns tests that are skipped without `dorm-skip`, and names in `.config/skips.txt` that are no
/// test.
pub(crate) fn check(root: &Path, files: &[PathBuf], wrong: &mut Vec<String>) -> Result<()> {
    let mut unknown: Vec<String> =
        allowed(root)?.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    for path in files {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path);
        let is_own = name.starts_with("crates/dorm-skip") || name.starts_with("xtask");
        if !is_own && (text.contains("\"SKIPPED") || text.contains("#[ignore")) {
            wrong.push(format!("{} skips a test by itself: call dorm_skip::skip", name.display()));
        }
        unknown.retain(|test| !text.contains(&format!("fn {}(", test.rsplit("::").next().unwrap_or(test))));
    }
    wrong.extend(unknown.into_iter().map(|test| format!(".config/skips.txt names {test}, which is not a test")));
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn root(skips: &str, test: &str) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(".config")).unwrap();
        std::fs::write(root.path().join(".config/skips.txt"), skips).unwrap();
        let path = root.path().join("tests.rs");
        std::fs::write(&path, test).unwrap();
        (root, path)
    }

    #[test]
    fn a_test_is_allowed_to_be_skipped_only_with_a_reason() {
        let (root, _) = root("# comment\n\na::b # no network here\nc # no disk\n", "");
        assert_eq!(allowed(root.path()).unwrap(), "a::b,c");
        for bad in ["a::b\n", "a::b #\n"] {
            std::fs::write(root.path().join(".config/skips.txt"), bad).unwrap();
            assert!(allowed(root.path()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_test_that_skips_by_itself_and_a_name_without_a_test_are_found() {
        let (root, path) = root("a::b # no network\nold # gone\n", "fn b() { eprintln!(\"SKIPPED\"); }");
        let mut wrong = Vec::new();
        check(root.path(), &[path], &mut wrong).unwrap();
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("tests.rs skips a test by itself"), "{wrong:?}");
        assert!(wrong[1].contains("names old"), "{wrong:?}");
    }
}
