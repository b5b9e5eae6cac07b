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
    /// Fail if the path already exists, also with `parents`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
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
    /// Create missing parent directories of the new path. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<bool>,
    /// Owner of created parent directories: a name, a number, or `UID:GID`. Default: root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// An extended attribute of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileAttribute {
    /// Name, which begins with `user.`.
    pub name: Text,
    /// Value.
    pub value: Text,
}

/// The extended attributes of a file whose names begin with `user.`, ordered by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FileAttributes {
    /// The attributes.
    pub attributes: Vec<FileAttribute>,
}

/// Changes extended attributes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetFileAttributes {
    /// Absolute path.
    pub path: Text,
    /// Attributes to set, at most 32 KiB of names and values. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<FileAttribute>,
    /// Names of attributes to remove afterwards. Missing ones are ignored. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<Text>,
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

/// Creates a watcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWatcher {
    /// Absolute path of the directory.
    pub path: Text,
    /// Also watch everything below the entries of the directory. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recursive: Option<bool>,
}

/// A watcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Watcher {
    /// Handle of the watcher. Handles are never reused in a sandbox.
    pub watcher: u64,
    /// The watched directory.
    pub path: Text,
    /// Whether everything below its entries is watched too.
    pub recursive: bool,
    /// Number of the newest change; 0 if there was none.
    pub last: u64,
}

/// All watchers of a sandbox, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WatcherList {
    /// The watchers, at most 64.
    pub watchers: Vec<Watcher>,
}

/// A change that a watcher has kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WatcherEvent {
    /// Number of the change: the changes of a watcher are counted from 1.
    pub number: u64,
    /// Kind of the change. `overflow` stands for all changes since the one before it: list the
    /// directory again.
    pub kind: WatchKind,
    /// The path that changed.
    pub path: Text,
}

/// Changes that a watcher has kept, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WatcherEvents {
    /// The changes.
    pub events: Vec<WatcherEvent>,
    /// Cursor: `after` of the next request, which forgets these changes.
    pub next: String,
    /// Whether there are more changes already.
    pub more: bool,
}
