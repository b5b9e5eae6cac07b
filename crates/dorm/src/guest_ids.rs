//! The host ids that the guests of a data directory are mapped to (decision 0029).
//!
//! ```text
//! DATA/guest-ids   the first id of the range; directories of earlier versions have none and use the legacy range
//! ```
//!
//! A new directory gets the requested range, or the default. The daemon does not start if something
//! else has an id of that range: nothing is lost yet. A directory that has a range keeps it, with a
//! warning if something else has ids of it, since a refusal would cut off its sandboxes. Another
//! range is used if it is requested and nothing of the directory runs; images, saved states and
//! volumes are then converted before each is used.

use std::io;
use std::path::{Path, PathBuf};

use dorm_disk::DiskError;
use dorm_guest_ids::{Claim, Databases, GuestIds, RECORD, claims, free};
use thiserror::Error;

use crate::identity::{self, DATABASE};

/// How many claims and runs are named.
const NAMED: usize = 3;

/// Why the daemon does not start.
#[derive(Debug, Error)]
pub(crate) enum GuestIdsError {
    /// Something else has ids of the range.
    #[error(
        "cannot use the host ids {ids} for guests: {}; a user with one of these ids can read and change images and \
         volumes: {}",
        named(claims),
        remedy(*free)
    )]
    Claimed {
        /// The range.
        ids: GuestIds,
        /// The users or ranges that have ids of it.
        claims: Vec<Claim>,
        /// A range that nothing else uses.
        free: Option<GuestIds>,
    },
    /// Sandboxes run with the current range.
    #[error(
        "cannot change the host ids of guests from {from} to {to} while sandboxes of {} run ({runs}): start the daemon \
         without --guest-ids and with --park-count 0, suspend or terminate them, stop the daemon, and give --guest-ids again",
        data.display()
    )]
    Running {
        /// The current range.
        from: GuestIds,
        /// The requested range.
        to: GuestIds,
        /// The data directory.
        data: PathBuf,
        /// Some of the runs.
        runs: String,
    },
    /// The ranges have ids in common.
    #[error("cannot change the host ids of guests from {from} to {to}: the ranges overlap; choose another range")]
    Overlap {
        /// The current range.
        from: GuestIds,
        /// The requested range.
        to: GuestIds,
    },
    /// A directory of runs could not be read.
    #[error("cannot list the runs in {}", path.display())]
    Runs {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The record of the range could not be read or written.
    #[error("cannot read or write the record of the host ids of guests in {}", data.display())]
    Record {
        /// The data directory.
        data: PathBuf,
        /// The cause.
        #[source]
        source: DiskError,
    },
}

fn named(claims: &[Claim]) -> String {
    let mut named: Vec<_> = claims.iter().take(NAMED).map(ToString::to_string).collect();
    if claims.len() > NAMED {
        named.push(format!("and {} more", claims.len() - NAMED));
    }
    named.join(", ")
}

fn remedy(free: Option<GuestIds>) -> String {
    match free {
        Some(free) => format!("choose a range that nothing else uses, such as --guest-ids {}", free.base()),
        None => "no range is free: remove one from /etc/subuid and /etc/subgid".to_owned(),
    }
}

/// The range to use from this start on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chosen {
    pub(crate) ids: GuestIds,
    /// The range that the directory had before; none for a new directory.
    had: Option<GuestIds>,
}

/// Decides which range the guests of `data` use from now on. Changes nothing.
pub(crate) fn choose(data: &Path, asked: Option<GuestIds>) -> Result<Chosen, GuestIdsError> {
    let had = present(data)?;
    let chosen = Chosen { ids: asked.or(had).unwrap_or_default(), had };
    let databases = of_host();
    let claims = claims(chosen.ids, &databases);
    let is_kept = had == Some(chosen.ids);
    if !claims.is_empty() && !is_kept {
        return Err(GuestIdsError::Claimed { ids: chosen.ids, claims, free: free(&databases) });
    }
    if let Some(from) = had.filter(|_| !is_kept) {
        may_change(data, from, chosen.ids)?;
    }
    if !claims.is_empty() {
        tracing::warn!(
            "guests have the host ids {}, and {}; a user with one of these ids can read and change images and volumes: \
             suspend all sandboxes with --park-count 0, stop the daemon, and {}",
            chosen.ids,
            named(&claims),
            remedy(free(&databases))
        );
    }
    Ok(chosen)
}

/// Returns the range of a directory, or none if the directory is new.
fn present(data: &Path) -> Result<Option<GuestIds>, GuestIdsError> {
    let has_entries = |name: &str| std::fs::read_dir(data.join(name)).is_ok_and(|mut entries| entries.next().is_some());
    let is_new = !data.join(RECORD).exists()
        && !data.join(DATABASE).exists()
        && !["saved_states", "volumes"].into_iter().any(has_entries);
    if is_new {
        return Ok(None);
    }
    recorded(data).map(Some)
}

/// Returns the range of a directory that is not new.
pub(crate) fn recorded(data: &Path) -> Result<GuestIds, GuestIdsError> {
    dorm_disk::recorded(data).map_err(|source| GuestIdsError::Record { data: data.to_owned(), source })
}

fn may_change(data: &Path, from: GuestIds, to: GuestIds) -> Result<(), GuestIdsError> {
    if from.overlaps(to) {
        return Err(GuestIdsError::Overlap { from, to });
    }
    let engine = data.join("gvisor");
    let noted = dorm_engine_gvisor::noted_runs(&engine);
    let noted = noted.map_err(|source| GuestIdsError::Runs { path: engine, source })?;
    let own = identity::id(data);
    let is_own = |owner: &str| own.as_deref().is_none_or(|own| own == owner);
    let runs = noted.into_iter().filter(|noted| noted.is_alive && is_own(&noted.owner));
    let runs: Vec<_> = runs.filter_map(|noted| noted.run).map(|run| run.to_string()).collect();
    match runs.is_empty() {
        true => Ok(()),
        false => {
            let runs = runs.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
            Err(GuestIdsError::Running { from, to, data: data.to_owned(), runs })
        }
    }
}

impl Chosen {
    /// Records the range of a new directory, before it has any other content that makes it look
    /// like an old one.
    pub(crate) fn record_new(self, data: &Path) -> Result<(), GuestIdsError> {
        if self.had.is_none() { self.write(data) } else { Ok(()) }
    }

    /// Records a change of the range, before anything is converted to the new one.
    pub(crate) fn record_change(self, data: &Path) -> Result<(), GuestIdsError> {
        let Some(from) = self.had.filter(|had| *had != self.ids) else { return Ok(()) };
        tracing::warn!(
            "guests have the host ids {} from now on, not {from}; images, snapshots and volumes are converted when they \
             are next used",
            self.ids
        );
        self.write(data)
    }

    fn write(self, data: &Path) -> Result<(), GuestIdsError> {
        let written = dorm_disk::record(data, self.ids);
        written.map_err(|source| GuestIdsError::Record { data: data.to_owned(), source })
    }
}

/// The state of the range that `data` has or would get, for `dorm doctor`.
pub(crate) enum Look {
    /// Nothing else uses it.
    Free(GuestIds),
    /// Something else has ids of it. The daemon starts only if the directory has that range
    /// already.
    Claimed { found: String, next_step: String, does_start: bool },
}

/// Inspects the range without changing anything.
pub(crate) fn look(data: &Path, asked: Option<GuestIds>) -> Result<Look, GuestIdsError> {
    let had = present(data)?;
    let ids = asked.or(had).unwrap_or_default();
    let databases = of_host();
    let claims = claims(ids, &databases);
    if claims.is_empty() {
        return Ok(Look::Free(ids));
    }
    let does_start = had == Some(ids);
    let first = if does_start { "suspend all sandboxes with --park-count 0, stop the daemon, and " } else { "" };
    let next_step = format!("{first}{}", remedy(free(&databases)));
    Ok(Look::Claimed { found: format!("{ids}, but {}", named(&claims)), next_step, does_start })
}

/// Reads the user databases of this host. They do not contain ids that other services, such as
/// LDAP, assign.
fn of_host() -> Databases {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Databases {
        subuid: read("/etc/subuid"),
        subgid: read("/etc/subgid"),
        passwd: read("/etc/passwd"),
        group: read("/etc/group"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: u32) -> GuestIds {
        GuestIds::new(base).unwrap()
    }

    #[test]
    fn a_new_directory_gets_the_default_or_what_is_asked_for_and_keeps_it() {
        for asked in [None, Some(at(3_000_000))] {
            let data = tempfile::tempdir().unwrap();
            let chosen = choose(data.path(), asked).unwrap();
            assert_eq!(chosen.ids, asked.unwrap_or(GuestIds::DEFAULT));
            chosen.record_new(data.path()).unwrap();
            assert_eq!(choose(data.path(), None).unwrap(), Chosen { ids: chosen.ids, had: Some(chosen.ids) });
        }
    }

    #[test]
    fn a_directory_of_an_earlier_version_keeps_the_legacy_range_until_another_is_asked_for() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(DATABASE), "").unwrap();
        let kept = choose(data.path(), None).unwrap();
        assert_eq!(kept.ids, GuestIds::LEGACY);
        kept.record_new(data.path()).unwrap();
        kept.record_change(data.path()).unwrap();
        assert!(!data.path().join(RECORD).exists(), "nothing was asked for");
        let changed = choose(data.path(), Some(GuestIds::DEFAULT)).unwrap();
        changed.record_new(data.path()).unwrap();
        assert_eq!(choose(data.path(), None).unwrap().ids, GuestIds::LEGACY, "not before the change is recorded");
        changed.record_change(data.path()).unwrap();
        assert_eq!(choose(data.path(), None).unwrap().ids, GuestIds::DEFAULT);
    }

    #[test]
    fn a_range_that_overlaps_the_one_of_before_is_refused() {
        let data = tempfile::tempdir().unwrap();
        choose(data.path(), None).unwrap().record_new(data.path()).unwrap();
        let error = choose(data.path(), Some(at(GuestIds::DEFAULT.base() + 1))).unwrap_err();
        assert!(matches!(error, GuestIdsError::Overlap { .. }), "{error}");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named_and_nothing_is_guessed() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(RECORD), "many\n").unwrap();
        let error = choose(data.path(), Some(GuestIds::DEFAULT)).unwrap_err();
        assert!(format!("{:#}", anyhow::Error::from(error)).contains("guest-ids"));
    }
}
