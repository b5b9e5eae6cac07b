//! Words about files inside a sandbox.

use serde::{Deserialize, Serialize};

use crate::guest::{GuestPath, GuestString};
use crate::process::User;

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// What is known of a file without reading it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileStat {
    /// What it is. A link is reported as itself.
    pub kind: FileKind,
    /// Its length in bytes.
    pub size: u64,
    /// Its permission bits, such as `0o644`.
    pub mode: u32,
    /// Its owner's number.
    pub uid: u32,
    /// Its group's number.
    pub gid: u32,
    /// Its owner's name, where the sandbox's user list has one.
    pub owner: Option<String>,
    /// Its group's name, where the sandbox's group list has one.
    pub group: Option<String>,
    /// When its contents last changed, in milliseconds since 1970.
    pub modified_unix_ms: i64,
    /// Where it points, if it is a link.
    pub link: Option<GuestString>,
}

/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its whole path.
    pub path: GuestPath,
    /// What is known of it.
    pub stat: FileStat,
}

/// What to do about missing parent directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parents {
    /// Refuse.
    #[default]
    Require,
    /// Make them.
    Create,
}

/// How to write a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WriteOptions {
    /// Its permission bits; by default those of the file it replaces, or `0o644`.
    pub mode: Option<u32>,
    /// Its owner, and that of directories made for it; by default that of the file it replaces, or root.
    pub owner: Option<User>,
    /// What to do about missing directories.
    pub parents: Parents,
}

/// Whether something reaches below a directory's own entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Only its own entries.
    #[default]
    Here,
    /// All below it.
    Below,
}

/// What may be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoveScope {
    /// A file or an empty directory.
    #[default]
    Single,
    /// A file, or a directory and all below it.
    Tree,
}

/// Something changed in a watched directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatchEvent {
    /// What happened.
    pub kind: WatchEventKind,
    /// To what.
    pub path: GuestPath,
}

/// What can happen to a watched file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchEventKind {
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
