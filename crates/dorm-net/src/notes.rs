//! The notes of leases: one small file each, written before the first change and removed after the
//! last.
//!
//! ```text
//! (none) ── note "making" ── changes ── note "made" ── use ── changes ── (none)
//! ```
//!
//! They are not synced to disk: what they describe does not outlive the kernel either.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use dorm_engine::LeaseId;
use dorm_lifecycle::{Egress, EgressDefault, EgressRule, EgressRules, HeaderRule, Verdict};
use serde_json::{Map, Value, json};

/// The progress of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Some of its parts may be missing.
    Making,
    /// All its parts were created.
    Made,
    /// The note cannot be read: the existing parts of the lease decide.
    Unclear,
}

/// The directory of the notes.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    directory: PathBuf,
    owner: String,
}

/// The content of a note.
struct Note {
    found: Noted,
    owner: Option<String>,
}

/// The recorded state of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub(crate) stage: Stage,
    /// The egress of its sandbox.
    pub(crate) egress: Egress,
}

impl Notes {
    /// Opens the notes in `directory` that belong to the data directory `owner`.
    pub(crate) fn open(directory: &Path, owner: String) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned(), owner })
    }

    /// Returns every note. One that cannot be read or parsed counts as [`Stage::Unclear`].
    pub(crate) fn list(&self) -> io::Result<BTreeMap<LeaseId, Noted>> {
        let own = self.all()?.into_iter().filter(|(_, note)| self.is_own(note));
        Ok(own.map(|(id, note)| (id, note.found)).collect())
    }

    /// Returns the numbers of all notes, including those of other data directories.
    pub(crate) fn taken(&self) -> io::Result<BTreeSet<LeaseId>> {
        Ok(self.all()?.into_keys().collect())
    }

    fn is_own(&self, note: &Note) -> bool {
        note.owner.as_ref().is_none_or(|owner| *owner == self.owner)
    }

    fn all(&self) -> io::Result<BTreeMap<LeaseId, Note>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            if let (Some(number), Some("json")) = (number, path.extension().and_then(|end| end.to_str())) {
                match read(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    note => {
                        // The owner of an unreadable note is unknown; it is treated as one of this
                        // data directory.
                        let unclear =
                            |_| Note { found: Noted { stage: Stage::Unclear, egress: Egress::None }, owner: None };
                        found.insert(LeaseId(number), note.unwrap_or_else(unclear));
                    }
                }
            }
        }
        Ok(found)
    }

    pub(crate) fn get(&self, id: LeaseId) -> io::Result<Option<Noted>> {
        match read(&self.path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            note => Ok(Some(note?).filter(|note| self.is_own(note)).map(|note| note.found)),
        }
    }

    pub(crate) fn write(&self, id: LeaseId, stage: Stage, egress: &Egress) -> io::Result<()> {
        let word = match stage {
            Stage::Making => "making",
            Stage::Made => "made",
            Stage::Unclear => "unclear",
        };
        let egress = match egress {
            Egress::None => json!("none"),
            Egress::Public => json!("public"),
            Egress::Allow(entries) => json!(entries),
            Egress::Rules(EgressRules { rules, default, headers }) => {
                let rules: Vec<_> = rules.iter().map(|rule| json!([rule.verdict.as_str(), rule.to])).collect();
                let headers: Vec<_> = headers.iter().map(noted_header).collect();
                json!({ "rules": rules, "public": *default == EgressDefault::Public, "headers": headers })
            }
        };
        let draft = self.directory.join(format!("{}.draft", id.0));
        std::fs::write(&draft, json!({ "stage": word, "owner": self.owner, "egress": egress }).to_string())?;
        std::fs::rename(draft, self.path(id))
    }

    pub(crate) fn remove(&self, id: LeaseId) -> io::Result<()> {
        match std::fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path(&self, id: LeaseId) -> PathBuf {
        self.directory.join(format!("{}.json", id.0))
    }
}

fn read(path: &Path) -> io::Result<Note> {
    let note: Value = serde_json::from_slice(&std::fs::read(path)?).unwrap_or_default();
    let stage = match note["stage"].as_str() {
        Some("made") => Stage::Made,
        Some("making") => Stage::Making,
        Some(_) | None => Stage::Unclear,
    };
    let egress = match &note["egress"] {
        Value::String(word) if word == "public" => Egress::Public,
        Value::Array(list) => Egress::Allow(list.iter().filter_map(|entry| Some(entry.as_str()?.to_owned())).collect()),
        // A rule that is missing would let another one decide.
        Value::Object(fields) => rules(fields).map_or(Egress::None, Egress::Rules),
        _ => Egress::None,
    };
    Ok(Note { found: Noted { stage, egress }, owner: note["owner"].as_str().map(str::to_owned) })
}

fn noted_header(header: &HeaderRule) -> Value {
    let HeaderRule { host, port, name, value, project } = header;
    json!([host, port, name, value, project.as_str()])
}

fn header(noted: &Value) -> Option<HeaderRule> {
    let text = |at: usize| noted.get(at)?.as_str().map(str::to_owned);
    let port = u16::try_from(noted.get(1)?.as_u64()?).ok()?;
    let project = text(4)?.parse().ok()?;
    Some(HeaderRule { host: text(0)?, port, name: text(2)?, value: text(3)?, project })
}

fn rules(fields: &Map<String, Value>) -> Option<EgressRules> {
    let rule = |rule: &Value| {
        let verdict = match rule.get(0)?.as_str()? {
            "allow" => Verdict::Allow,
            "deny" => Verdict::Deny,
            _ => return None,
        };
        Some(EgressRule { verdict, to: rule.get(1)?.as_str()?.to_owned() })
    };
    let rules = fields.get("rules")?.as_array()?.iter().map(rule).collect::<Option<_>>()?;
    let default = if fields.get("public")?.as_bool()? { EgressDefault::Public } else { EgressDefault::Deny };
    let headers = match fields.get("headers") {
        Some(headers) => headers.as_array()?.iter().map(header).collect::<Option<_>>()?,
        // A note of an earlier version.
        None => Vec::new(),
    };
    Some(EgressRules { rules, default, headers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_egress_is_noted_with_its_lease() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::open(directory.path(), "me".into()).unwrap();
        let list = Egress::Allow(vec!["10.0.0.0/8".into(), "*.example.com".into()]);
        let rule = |verdict, to: &str| EgressRule { verdict, to: to.to_owned() };
        let rules = vec![rule(Verdict::Deny, "10.0.0.0/8"), rule(Verdict::Allow, "*.example.com")];
        let header = HeaderRule {
            host: "*.example.com".to_owned(),
            port: 8443,
            name: "A".to_owned(),
            value: "{T}".to_owned(),
            project: "one".parse().unwrap(),
        };
        let rules = Egress::Rules(EgressRules { rules, default: EgressDefault::Public, headers: vec![header] });
        for egress in [Egress::None, Egress::Public, Egress::Allow(vec![]), list, Egress::closed(), rules] {
            notes.write(LeaseId(1), Stage::Made, &egress).unwrap();
            assert_eq!(notes.list().unwrap()[&LeaseId(1)], Noted { stage: Stage::Made, egress });
        }
    }

    #[test]
    fn an_egress_that_is_missing_or_cannot_be_read_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::open(directory.path(), "me".into()).unwrap();
        for text in [
            r#"{"stage":"made","owner":"me"}"#,
            r#"{"stage":"made","owner":"me","egress":"everything"}"#,
            r#"{"stage":"made","owner":"me","egress":7}"#,
            r#"{"stage":"made","owner":"me","egress":{"rules":[["allow"]],"public":true}}"#,
            r#"{"stage":"made","owner":"me","egress":{"rules":[]}}"#,
            r#"{"stage":"made","owner":"me","egress":{"rules":[],"public":true,"headers":[["a.test"]]}}"#,
        ] {
            std::fs::write(directory.path().join("1.json"), text).unwrap();
            assert_eq!(notes.list().unwrap()[&LeaseId(1)].egress, Egress::None, "{text}");
        }
    }
}
