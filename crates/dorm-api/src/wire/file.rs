//! Files inside a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text::{Text, Time};

/// What is known of a file without reading it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileStat {
    /// Its whole path.
    pub path: Text,
    /// What it is. A link is reported as itself.
    pub kind: FileKind,
    /// Its length.
    pub size_bytes: u64,
    /// Its permission bits, in octal: `0644`.
    pub mode: String,
    /// Its owner's number.
    pub uid: u32,
    /// Its group's number.
    pub gid: u32,
    /// Its owner's name, where the sandbox has one.
    pub owner: Option<String>,
    /// Its group's name, where the sandbox has one.
    pub group: Option<String>,
    /// When its contents last changed.
    pub modified_at: Time,
    /// Where it points, if it is a link.
    pub link: Option<Text>,
}

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file with contents.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, socket or pipe.
    Other,
}

/// A directory's entries, a directory before what is in it, by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    /// The entries.
    pub entries: Vec<FileStat>,
    /// `after` for the next page; none on the last one.
    pub next: Option<String>,
}

/// Makes a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    /// Its absolute path.
    pub path: Text,
    /// Whether missing parents are made and an existing directory is a success. Default: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<bool>,
    /// Who owns it: a name, a number, or `UID:GID`. Default: root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// Renames, replacing a file that is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// Its absolute path now.
    pub from: Text,
    /// Its absolute path then.
    pub to: Text,
}

/// Something changed in a watched directory: data of the server-sent event `change`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    /// What happened.
    pub kind: WatchKind,
    /// To what.
    pub path: Text,
}

/// What can happen to a watched file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WatchKind {
    /// It is new.
    Created,
    /// Its contents changed.
    Modified,
    /// Its permissions, owner or times changed.
    Attributes,
    /// It is gone.
    Removed,
    /// It was renamed; this was its name.
    MovedFrom,
    /// It was renamed; this is its name.
    MovedTo,
    /// So much changed that some of it is not reported: look for yourself. The path is the watched one.
    Overflow,
}
