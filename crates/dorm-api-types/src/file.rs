//! Files inside a sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text::{Text, Time};

/// Metadata of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileStat {
    /// Absolute path.
    pub path: Text,
    /// Type of the file. A symbolic link is reported as a link.
    pub kind: FileKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Permission bits in octal, such as `0644`.
    pub mode: String,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID of the group.
    pub gid: u32,
    /// Name of the owner, if the sandbox has one.
    pub owner: Option<String>,
    /// Name of the group, if the sandbox has one.
    pub group: Option<String>,
    /// When the contents last changed.
    pub modified_at: Time,
    /// Target of a symbolic link.
    pub link: Option<Text>,
}

/// Type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, socket or pipe.
    Other,
}

/// A page of directory entries, ordered by name. Each directory comes before its contents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    /// The entries.
    pub entries: Vec<FileStat>,
    /// Cursor: `after` of the next page. Null on the last page.
    pub next: Option<String>,
}

/// Creates a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    /// Absolute path.
    pub path: Text,
    /// Create missing parent directories, and succeed if the directory already exists. Default:
    /// true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<bool>,
    /// Owner: a name, a number, or `UID:GID`. Default: root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// Renames a file or directory. An existing file of the new name is replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// Current absolute path.
    pub from: Text,
    /// New absolute path.
    pub to: Text,
}

/// A change in a watched directory. Data of the server-sent event `change`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    /// Kind of the change.
    pub kind: WatchKind,
    /// The path that changed.
    pub path: Text,
}

/// Kind of a change to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WatchKind {
    /// It was created.
    Created,
    /// Its contents changed.
    Modified,
    /// Its permissions, owner or timestamps changed.
    Attributes,
    /// It was deleted.
    Removed,
    /// It was renamed; the path is its old name.
    MovedFrom,
    /// It was renamed; the path is its new name.
    MovedTo,
    /// Too many changes happened at once and some were not reported. List the directory again. The
    /// path is the watched directory.
    Overflow,
}
