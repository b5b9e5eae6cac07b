//! Files.

use dorm_agent_client as agent;
use dorm_agent_client::{FileKind, GuestPath, WatchEventKind};
use dorm_api_types as wire;

use super::Of;
use crate::error::ApiError;

/// The metadata of the file at `path`.
pub(crate) fn stat(path: &GuestPath, stat: agent::FileStat) -> wire::FileStat {
    wire::FileStat {
        path: wire::Text::from_bytes(path.as_bytes()),
        kind: match stat.kind {
            FileKind::File => wire::FileKind::File,
            FileKind::Directory => wire::FileKind::Directory,
            FileKind::Link => wire::FileKind::Link,
            FileKind::Other => wire::FileKind::Other,
        },
        size_bytes: stat.size,
        mode: format!("{:04o}", stat.mode & 0o7777),
        uid: stat.uid,
        gid: stat.gid,
        owner: stat.owner,
        group: stat.group,
        modified_at: wire::Time(jiff::Timestamp::from_millisecond(stat.modified_unix_ms).unwrap_or_default()),
        link: stat.link.map(|link| wire::Text::from_bytes(link.as_bytes())),
    }
}

/// One entry of a listing.
pub(crate) fn entry(entry: agent::Entry) -> wire::FileStat {
    stat(&entry.path, entry.stat)
}

/// Parses permission bits in octal.
pub(crate) fn parse_mode(text: &str) -> Result<u32, ApiError> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let octal = digits.bytes().all(|digit| digit.is_ascii_digit());
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if octal && mode <= 0o7777 => Ok(mode),
        _ => Err(ApiError::invalid(format!("mode '{text}' is not octal permission bits such as 0644"), "")),
    }
}

impl Of<agent::WatchEvent> for wire::WatchEvent {
    fn of(event: agent::WatchEvent) -> Self {
        let kind = match event.kind {
            WatchEventKind::Created => wire::WatchKind::Created,
            WatchEventKind::Modified => wire::WatchKind::Modified,
            WatchEventKind::Attributes => wire::WatchKind::Attributes,
            WatchEventKind::Removed => wire::WatchKind::Removed,
            WatchEventKind::MovedFrom => wire::WatchKind::MovedFrom,
            WatchEventKind::MovedTo => wire::WatchKind::MovedTo,
            WatchEventKind::Overflow => wire::WatchKind::Overflow,
        };
        Self { kind, path: wire::Text::from_bytes(event.path.as_bytes()) }
    }
}
