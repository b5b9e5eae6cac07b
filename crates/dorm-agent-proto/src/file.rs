//! Types for files inside a sandbox.

use serde::{Deserialize, Serialize};

use crate::guest::{GuestBytes, GuestPath, GuestString};
use crate::process::User;

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// Metadata of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileStat {
    /// Its type. A symbolic link is reported as a link, not as its target.
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
    /// Its target, if it is a symbolic link.
    pub link: Option<GuestString>,
}

/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its absolute path.
    pub path: GuestPath,
    /// Its metadata.
    pub stat: FileStat,
}

/// One entry of a listing, with its extended attributes and the target of a symbolic link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DetailedEntry {
    /// Its absolute path.
    pub path: GuestPath,
    /// Its metadata.
    pub stat: FileStat,
    /// Where it leads, if it is a symbolic link to something that exists.
    pub target: Option<LinkTarget>,
    /// Its extended attributes, or those of the target, ordered by name; none if they cannot be
    /// read or take more than [`ATTRIBUTES_BYTES_MAX`].
    pub attributes: Vec<Attribute>,
}

/// The file that a symbolic link leads to, over all links on the way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkTarget {
    /// Its absolute path without links.
    pub path: GuestPath,
    /// Its type.
    pub kind: FileKind,
}

/// How to treat missing parent directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parents {
    /// Fail if one is missing.
    #[default]
    Require,
    /// Create them.
    Create,
}

/// How to write a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WriteOptions {
    /// Its permission bits; by default those of the file it replaces, or `0o644`.
    pub mode: Option<u32>,
    /// Its owner, and the owner of created parent directories; by default that of the file it
    /// replaces, or root.
    pub owner: Option<User>,
    /// How to treat missing parent directories.
    pub parents: Parents,
}

/// Where the data of a write in place goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteAt {
    /// To the beginning; the file is emptied first.
    Emptied,
    /// To the end. Each piece is appended to what the file has then.
    End,
    /// From this byte on. Bytes behind the data are kept; a gap before it reads as zeros.
    Offset(u64),
}

/// The most bytes of names and values of the extended attributes that are read or changed at once.
/// In JSON they take at most six times as much.
pub const ATTRIBUTES_BYTES_MAX: usize = 32 * 1024;

/// An extended attribute of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name, which begins with `user.`.
    pub name: GuestString,
    /// Its value.
    pub value: GuestBytes,
}

impl Attribute {
    /// The beginning of the names of all attributes that a caller may read and change.
    pub const PREFIX: &'static str = "user.";
}

/// How far below a directory a call applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Only to its own entries.
    #[default]
    Here,
    /// To everything below it.
    Below,
}

/// The extent of a removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoveScope {
    /// A file or an empty directory.
    #[default]
    Single,
    /// A file, or a directory and everything below it.
    Tree,
}

/// A change in a watched directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatchEvent {
    /// The kind of the change.
    pub kind: WatchEventKind,
    /// The changed path.
    pub path: GuestPath,
}

/// The kind of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchEventKind {
    /// The file was created.
    Created,
    /// Its contents changed.
    Modified,
    /// Its permissions, owner or times changed.
    Attributes,
    /// The file was removed.
    Removed,
    /// The file was renamed; the path is its old name.
    MovedFrom,
    /// The file was renamed; the path is its new name.
    MovedTo,
    /// Some changes were dropped because there were too many: read the directory again. The path is
    /// the watched one.
    Overflow,
}

/// A watcher.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatcherStatus {
    /// Its handle. It is never reused in this sandbox or in a descendant.
    pub watcher: u64,
    /// The watched directory.
    pub path: GuestPath,
    /// Whether changes in directories below it are kept too.
    pub scope: Scope,
    /// The number of the newest change; 0 if there was none.
    pub last: u64,
}

/// A change that a watcher has kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NumberedEvent {
    /// Its number: the changes of a watcher are counted from 1.
    pub number: u64,
    /// The change. [`WatchEventKind::Overflow`] stands for all changes since the one before it.
    pub event: WatchEvent,
}
