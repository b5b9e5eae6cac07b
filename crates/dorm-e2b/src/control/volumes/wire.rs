//! The JSON of the API of contents.

use std::time::SystemTime;

use dorm_service::{EntryStat, FileKind};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An entry of a volume.
#[derive(Serialize)]
pub(super) struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    atime: String,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

/// A change of an entry.
#[derive(Deserialize)]
pub(super) struct Change {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mode: Option<u32>,
}

impl From<EntryStat> for Entry {
    fn from(entry: EntryStat) -> Self {
        let EntryStat { name, path, kind, bytes, mode, uid, gid, accessed, modified, changed, target } = entry;
        let kind = match kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Other => "unknown",
        };
        let [atime, mtime, ctime] = [accessed, modified, changed].map(time);
        Self { name, kind, path, size: bytes, mode, uid, gid, atime, mtime, ctime, target }
    }
}

/// A time in RFC 3339. A guest can set one that clients cannot read: it becomes 1970.
fn time(at: SystemTime) -> String {
    let at =
        Timestamp::try_from(at).ok().filter(|at| (1..=9999).contains(&at.to_zoned(jiff::tz::TimeZone::UTC).year()));
    at.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_that_no_client_can_read_is_shown_as_1970() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let before = |seconds| SystemTime::UNIX_EPOCH - Duration::from_secs(seconds);
        assert_eq!(time(at(1_000_000_000)), "2001-09-09T01:46:40Z");
        assert_eq!(time(before(86_400)), "1969-12-31T00:00:00Z");
        for unreadable in [at(1 << 40), at(1 << 60), before(1 << 40), before(1 << 60)] {
            assert_eq!(time(unreadable), "1970-01-01T00:00:00Z");
        }
    }
}
