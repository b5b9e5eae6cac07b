//! How much old debt each file may still have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use super::RATCHET;

const HEAD: &str = "\
# How many retired words and how many functions of more than 70 lines each file may still have: see xtask/src/tidy.rs.
# The numbers may only fall. `DORM_UPDATE=1 cargo xtask tidy` writes those that have fallen, and moves those of a file
# that was renamed. After a new word in the table, remove this file first.
";

/// What is counted in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) words: usize,
    pub(super) functions: usize,
}

/// The counts of all files that have any.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Ratchet(BTreeMap<String, Counts>);

impl Ratchet {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let [path, words, functions] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                bail!("'{line}' is not PATH words=NUMBER functions=NUMBER");
            };
            let number = |text: &str, key: &str| {
                let number = text.strip_prefix(key).and_then(|number| number.parse().ok());
                number.with_context(|| format!("'{line}' has no {key}NUMBER"))
            };
            let of_file = Counts { words: number(words, "words=")?, functions: number(functions, "functions=")? };
            if counts.insert(path.to_owned(), of_file).is_some() {
                bail!("{path} is listed twice");
            }
        }
        Ok(Self(counts))
    }

    pub(super) fn render(&self) -> String {
        let mut text = HEAD.to_owned();
        for (path, Counts { words, functions }) in &self.0 {
            let _ = writeln!(text, "{path} words={words} functions={functions}");
        }
        text
    }

    pub(super) fn set(&mut self, path: &str, counts: Counts) {
        if counts != Counts::default() {
            self.0.insert(path.to_owned(), counts);
        }
    }

    pub(super) fn totals(&self) -> Counts {
        self.0.values().fold(Counts::default(), |sum, counts| Counts {
            words: sum.words + counts.words,
            functions: sum.functions + counts.functions,
        })
    }

    /// Whether these may take the place of `before`: what one file has more another has less.
    pub(super) fn check_totals(&self, before: Option<&Self>) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let (now, then) = (self.totals(), before.totals());
        for (what, now, then) in
            [("retired words", now.words, then.words), ("long functions", now.functions, then.functions)]
        {
            if now > then {
                bail!("there are {now} {what}, more than the {then} of {RATCHET}: run cargo xtask tidy to see them");
            }
        }
        Ok(())
    }

    /// Says where these differ from what is `allowed`. `notes` has the file and the text of each
    /// thing that was counted.
    pub(super) fn compare(&self, allowed: &Self, notes: &[(String, String)], wrong: &mut Vec<String>) {
        let paths: BTreeSet<&String> = self.0.keys().chain(allowed.0.keys()).collect();
        for path in paths {
            let of = |ratchet: &Self| ratchet.0.get(path).copied().unwrap_or_default();
            let (now, then) = (of(self), of(allowed));
            if now.words > then.words || now.functions > then.functions {
                wrong.push(format!(
                    "{path} has {} retired words and {} long functions; {RATCHET} allows {} and {}:",
                    now.words, now.functions, then.words, then.functions
                ));
                wrong.extend(notes.iter().filter(|(file, _)| file == path).map(|(_, note)| format!("  {path}:{note}")));
            } else if now != then {
                wrong.push(format!("{path} has less than {RATCHET} allows: run DORM_UPDATE=1 cargo xtask tidy"));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ratchet(files: &[(&str, usize, usize)]) -> Ratchet {
        let mut ratchet = Ratchet::default();
        for (path, words, functions) in files {
            ratchet.set(path, Counts { words: *words, functions: *functions });
        }
        ratchet
    }

    fn compare(found: &Ratchet, allowed: &Ratchet) -> Vec<String> {
        let notes = [("a.rs".to_owned(), "7: note".to_owned()), ("b.rs".to_owned(), "9: other".to_owned())];
        let mut wrong = Vec::new();
        found.compare(allowed, &notes, &mut wrong);
        wrong
    }

    #[test]
    fn what_is_rendered_is_parsed_again_and_anything_else_is_refused() {
        let of = ratchet(&[("a.rs", 2, 0), ("b.rs", 0, 1), ("clean.rs", 0, 0)]);
        assert_eq!(Ratchet::parse(&of.render()).unwrap(), of);
        assert!(!of.render().contains("clean.rs"));
        for bad in ["a.rs", "a.rs words=1", "a.rs words=x functions=0", "a words=1 functions=0\na words=1 functions=0"]
        {
            assert!(Ratchet::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn more_than_allowed_is_named_with_each_place_and_an_unlisted_file_may_have_none() {
        let allowed = ratchet(&[("a.rs", 1, 0)]);
        assert_eq!(compare(&ratchet(&[("a.rs", 1, 0)]), &allowed), Vec::<String>::new());
        let wrong = compare(&ratchet(&[("a.rs", 2, 0)]), &allowed);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert_eq!(wrong[1], "  a.rs:7: note");
        let wrong = compare(&ratchet(&[("a.rs", 1, 0), ("b.rs", 0, 1)]), &allowed);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert_eq!(wrong[1], "  b.rs:9: other");
    }

    #[test]
    fn less_than_allowed_must_be_written_down() {
        let wrong = compare(&ratchet(&[]), &ratchet(&[("a.rs", 1, 0)]));
        assert_eq!(wrong, ["a.rs has less than .config/tidy.txt allows: run DORM_UPDATE=1 cargo xtask tidy"]);
    }

    #[test]
    fn an_update_may_move_counts_between_files_but_not_raise_their_sum() {
        let before = ratchet(&[("a.rs", 2, 1)]);
        ratchet(&[("renamed.rs", 2, 1)]).check_totals(Some(&before)).unwrap();
        ratchet(&[("a.rs", 9, 9)]).check_totals(None).unwrap();
        assert!(ratchet(&[("a.rs", 2, 0), ("b.rs", 1, 0)]).check_totals(Some(&before)).is_err());
        assert!(ratchet(&[("a.rs", 0, 2)]).check_totals(Some(&before)).is_err());
    }
}
