//! Files.

use dorm_agent_client as agent;
use dorm_agent_client::{FileKind, GuestBytes, GuestPath, WatchEventKind};
use dorm_api_types as wire;

use super::Of;
use crate::error::ApiError;
use crate::extract::{bytes_of, guest_string};

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

/// The extended attributes of a file.
pub(crate) fn attributes(attributes: Vec<agent::Attribute>) -> wire::FileAttributes {
    let attribute = |one: agent::Attribute| wire::FileAttribute {
        name: wire::Text::from_bytes(one.name.as_bytes()),
        value: wire::Text::from_bytes(&one.value.0),
    };
    wire::FileAttributes { attributes: attributes.into_iter().map(attribute).collect() }
}

/// An extended attribute to set.
pub(crate) fn attribute(asked: &wire::FileAttribute) -> Result<agent::Attribute, ApiError> {
    let name = guest_string("name", &asked.name)?;
    Ok(agent::Attribute { name, value: GuestBytes(bytes_of("value", &asked.value)?) })
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

impl Of<WatchEventKind> for wire::WatchKind {
    fn of(kind: WatchEventKind) -> Self {
        match kind {
            WatchEventKind::Created => Self::Created,
            WatchEventKind::Modified => Self::Modified,
            WatchEventKind::Attributes => Self::Attributes,
            WatchEventKind::Removed => Self::Removed,
            WatchEventKind::MovedFrom => Self::MovedFrom,
            WatchEventKind::MovedTo => Self::MovedTo,
            WatchEventKind::Overflow => Self::Overflow,
        }
    }
}

impl Of<agent::WatchEvent> for wire::WatchEvent {
    fn of(event: agent::WatchEvent) -> Self {
        Self { kind: wire::WatchKind::of(event.kind), path: wire::Text::from_bytes(event.path.as_bytes()) }
    }
}

impl Of<agent::WatcherStatus> for wire::Watcher {
    fn of(status: agent::WatcherStatus) -> Self {
        Self {
            watcher: status.watcher,
            path: wire::Text::from_bytes(status.path.as_bytes()),
            recursive: status.scope == agent::Scope::Below,
            last: status.last,
        }
    }
}

impl Of<agent::NumberedEvent> for wire::WatcherEvent {
    fn of(change: agent::NumberedEvent) -> Self {
        let wire::WatchEvent { kind, path } = wire::WatchEvent::of(change.event);
        Self { number: change.number, kind, path }
    }
}
