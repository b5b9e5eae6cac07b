//! The agents in the data directory: that of new sandboxes, and those of earlier daemons, which
//! sandboxes saved by them still need (decision 0043).
//!
//! A restored process continues in the program text that it has mapped, so memory can only be
//! restored with the agent that ran in it. The writer of a memory image is therefore recorded as
//! the build of `runsc` and the agent.

#![allow(clippy::disallowed_methods, reason = "everything here is called in place or on threads that may block")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::GvisorError;

/// The beginning of the names of the agents' directories, before the digest.
const PREFIX: &str = "agent-";
/// The number of hexadecimal digits of the digest there.
const DIGITS: usize = 16;
/// Separates the build of `runsc` and the agent.
const WITH: &str = " with ";

/// The agents beside that of new sandboxes.
#[derive(Debug)]
pub(crate) struct Agents {
    newest: PathBuf,
}

impl Agents {
    /// Uses the agent at `newest` for new sandboxes. Earlier ones are in directories beside its
    /// own, each named by the digest of its content.
    pub(crate) fn new(newest: PathBuf) -> Self {
        Self { newest }
    }

    /// Returns whether memory that `writer` wrote can be restored with one of the agents.
    pub(crate) fn restore(&self, writer: &str) -> bool {
        let name = self.for_images_of(writer);
        name.is_none_or(|name| self.path(Some(&name)).is_ok())
    }

    /// Returns the agent with which memory that `writer` wrote is restored; `None` for the newest.
    pub(crate) fn for_images_of(&self, writer: &str) -> Option<String> {
        let named = match parts(writer) {
            (_, Some(agent)) => Some(agent.to_owned()),
            // Version 0.1.0 did not record its agent. It was the first release.
            (_, None) => self.oldest(),
        };
        named.filter(|name| name_in(&self.newest) != Some(name))
    }

    /// Returns the path of the agent `name`, which has been read and is what its name says; of the
    /// newest for `None`.
    pub(crate) fn path(&self, name: Option<&str>) -> Result<PathBuf, GvisorError> {
        let Some(name) = name else { return Ok(self.newest.clone()) };
        let (Some(all), Some(file)) = (self.directory(), self.newest.file_name()) else {
            return Err(GvisorError::NoAgent { name: name.to_owned(), directory: self.newest.clone() });
        };
        let path = all.join(name).join(file);
        match fs::read(&path) {
            Ok(content) if name_of(&content) == name => Ok(path),
            Ok(_) => Err(GvisorError::DamagedAgent(path)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(GvisorError::NoAgent { name: name.to_owned(), directory: all.to_owned() })
            }
            Err(source) => Err(GvisorError::file("read", path, source)),
        }
    }

    fn directory(&self) -> Option<&Path> {
        self.newest.parent()?.parent()
    }

    /// Returns the agent that was installed first.
    fn oldest(&self) -> Option<String> {
        let file = self.newest.file_name()?;
        let entries = fs::read_dir(self.directory()?).ok()?.flatten();
        let agents = entries.filter_map(|entry| {
            let name = entry.file_name().to_str().filter(|name| is_name(name))?.to_owned();
            let installed = fs::metadata(entry.path().join(file)).ok()?.modified().ok()?;
            Some((installed, name))
        });
        agents.min().map(|(_, name)| name)
    }
}

/// Returns the text that is recorded as the writer of memory in which the agent at `agent` ran,
/// under `build`.
pub(crate) fn writer(build: &str, agent: &Path) -> String {
    match name_in(agent) {
        Some(name) => format!("{build}{WITH}{name}"),
        None => build.to_owned(),
    }
}

/// Returns the build and, if it is recorded, the agent of `writer`.
pub(crate) fn parts(writer: &str) -> (&str, Option<&str>) {
    match writer.rsplit_once(WITH) {
        Some((build, agent)) if is_name(agent) => (build, Some(agent)),
        _ => (writer, None),
    }
}

/// Returns the name of the directory of the agent at `path`, if it is one of this form.
fn name_in(path: &Path) -> Option<&str> {
    path.parent()?.file_name()?.to_str().filter(|name| is_name(name))
}

/// Manifests of imported snapshots have names, too, so they must not lead elsewhere.
fn is_name(name: &str) -> bool {
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(PREFIX).is_some_and(|digest| digest.len() == DIGITS && digest.bytes().all(is_digit))
}

fn name_of(content: &[u8]) -> String {
    let digest = blake3::hash(content).to_hex();
    format!("{PREFIX}{}", digest.get(..DIGITS).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn install(directory: &Path, content: &[u8], age: u64) -> PathBuf {
        let home = directory.join(name_of(content));
        fs::create_dir(&home).unwrap();
        let path = home.join("dorm-agent");
        fs::write(&path, content).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        path
    }

    #[test]
    fn memory_is_restored_with_the_agent_that_ran_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = install(directory.path(), b"first", 30);
        let second = install(directory.path(), b"second", 20);
        let agents = Agents::new(install(directory.path(), b"third", 10));
        let of = |path: &Path| agents.for_images_of(&writer("1+dorm1", path));
        assert_eq!(agents.path(of(&second).as_deref()).unwrap(), second);
        assert_eq!(agents.path(of(&first).as_deref()).unwrap(), first);
        assert_eq!(of(&agents.newest), None);
        assert_eq!(agents.path(agents.for_images_of("1+dorm1").as_deref()).unwrap(), first, "0.1.0 recorded none");
        assert_eq!(parts(&writer("1+dorm1", &first)).0, "1+dorm1");
        assert!(agents.restore(&writer("1", &first)));
    }

    #[test]
    fn an_agent_that_is_gone_or_damaged_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let old = install(directory.path(), b"old", 10);
        let agents = Agents::new(install(directory.path(), b"new", 0));
        let by = writer("1", &old);
        let refused = || agents.path(agents.for_images_of(&by).as_deref()).unwrap_err().to_string();
        fs::write(&old, "other").unwrap();
        assert!(refused().contains(old.to_str().unwrap()) && refused().contains("damaged"), "{}", refused());
        assert!(!agents.restore(&by));
        fs::remove_file(&old).unwrap();
        assert!(refused().contains(name_in(&old).unwrap()), "{}", refused());
        assert!(!agents.restore(&by));
    }

    #[test]
    fn the_agent_of_the_daemon_is_installed_under_such_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = dorm_agent_binary::install(directory.path()).unwrap();
        assert_eq!(name_in(&path), Some(&*name_of(dorm_agent_binary::AGENT)));
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        for agent in ["agent-../../../../etc", "agent-", "agent-0123456789ABCDEF", "passwd", "agent-0123456789abcdef0"]
        {
            assert_eq!(parts(&format!("1 with {agent}")).1, None, "{agent}");
        }
        assert_eq!(parts("1 with agent-0123456789abcdef"), ("1", Some("agent-0123456789abcdef")));
        assert_eq!(writer("1", Path::new("/somewhere/dorm-agent")), "1");
    }
}
