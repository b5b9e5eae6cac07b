//! Subjects of commits have the form `area: imperative, what changed`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

const CHARACTERS_MAX: usize = 120;
/// Words with which no imperative begins.
const NO_VERBS: [&str; 24] = [
    "a", "all", "an", "another", "as", "each", "every", "how", "it", "more", "no", "nobody", "one", "some", "that",
    "the", "there", "these", "this", "what", "when", "which", "who", "whoever",
];
/// Imperatives that look like another form of a verb.
const VERBS: [&str; 12] =
    ["address", "bring", "bypass", "embed", "feed", "focus", "need", "pass", "process", "seed", "speed", "suppress"];

/// Checks the commits since `base` that are no merges.
pub(super) fn check(root: &Path, base: &str, wrong: &mut Vec<String>) -> Result<()> {
    let range = format!("{base}..HEAD");
    let output = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", "--end-of-options", &range, "--"])
        .current_dir(root)
        .output()
        .context("run git log")?;
    if !output.status.success() {
        bail!("git log {range}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(reason) = refuse(subject) {
            wrong.push(format!("commit {commit}: '{subject}': {reason}"));
        }
    }
    Ok(())
}

/// Why `subject` has another form.
fn refuse(subject: &str) -> Option<String> {
    let form = || Some("write 'area: imperative, what changed'".to_owned());
    let Some((areas, change)) = subject.split_once(": ") else { return form() };
    let is_area = |area: &str| {
        area.starts_with(|first: char| first.is_ascii_lowercase() || first == '.')
            && area
                .chars()
                .all(|symbol| symbol.is_ascii_lowercase() || symbol.is_ascii_digit() || "-_./".contains(symbol))
    };
    if !areas.split(", ").all(is_area) {
        return form();
    }
    let verb = change.split(|symbol: char| !symbol.is_alphanumeric() && symbol != '-').next().unwrap_or_default();
    if !verb.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Some(format!("begin what changed with a verb in lower case, not with '{verb}'"));
    }
    let looks_inflected = ["ing", "ed", "s"].iter().any(|ending| verb.ends_with(ending));
    if NO_VERBS.contains(&verb) || (looks_inflected && !VERBS.contains(&verb)) {
        return Some(format!("'{verb}' is no imperative: write 'add', 'rename', 'refuse', …"));
    }
    if subject.chars().count() > CHARACTERS_MAX {
        return Some(format!("it is longer than {CHARACTERS_MAX} characters"));
    }
    subject.ends_with('.').then(|| "it ends with a full stop".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_and_an_imperative_pass() {
        for subject in [
            "gvisor: rename hull to container",
            "service, api: pass the reason on",
            "xtask/tidy: refuse retired words, as the vocabulary says",
            "docs: process lists in pages",
            ".github: add two workflows",
        ] {
            assert_eq!(refuse(subject), None, "{subject}");
        }
    }

    #[test]
    fn other_forms_are_refused_with_the_reason() {
        for (subject, part) in [
            ("Fix things", "area: imperative"),
            ("Service: fix things", "area: imperative"),
            ("service:fix things", "area: imperative"),
            ("service: the actor waits", "'the' is no imperative"),
            ("service: adds a limit", "'adds' is no imperative"),
            ("service: added a limit", "'added' is no imperative"),
            ("service: adding a limit", "'adding' is no imperative"),
            ("service: Add a limit", "lower case"),
            ("service: add a limit.", "full stop"),
        ] {
            let reason = refuse(subject).unwrap_or_default();
            assert!(reason.contains(part), "{subject}: {reason}");
        }
        assert!(refuse(&format!("service: add {}", "x".repeat(200))).is_some());
    }
}
