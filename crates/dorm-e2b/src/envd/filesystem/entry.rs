//! Entries of directories, as clients get them.

use std::collections::BTreeMap;

use dorm_agent_client::{Attribute, DetailedEntry, FileKind};
use jiff::Timestamp;
use serde::Serialize;

use super::super::files::ATTRIBUTE;
use super::super::path;

/// A file, directory or link.
#[derive(Serialize, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    size: String,
    mode: u32,
    permissions: String,
    owner: String,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_target: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_symlink: bool,
}

impl Entry {
    pub(super) fn of(found: DetailedEntry) -> Self {
        let DetailedEntry { path, stat, target, attributes } = found;
        let path = path.to_text();
        let is_symlink = stat.kind == FileKind::Link;
        let kind = target.as_ref().map_or(stat.kind, |target| target.kind);
        // A link that leads nowhere shows what it contains.
        let contained = stat.link.as_ref().map(|link| link.to_text());
        let symlink_target = target.map(|target| target.path.to_text()).or(contained);
        Self {
            name: path::name(&path).to_owned(),
            kind: type_name(kind),
            size: stat.size.to_string(),
            mode: stat.mode & 0o777,
            permissions: permissions(stat.kind, stat.mode),
            owner: stat.owner.unwrap_or_else(|| stat.uid.to_string()),
            group: stat.group.unwrap_or_else(|| stat.gid.to_string()),
            modified_time: Timestamp::from_millisecond(stat.modified_unix_ms).ok().map(|time| time.to_string()),
            symlink_target,
            metadata: metadata(attributes),
            is_symlink,
            path,
        }
    }

    /// The number of bytes that it takes, nearly.
    pub(super) fn bytes(&self) -> u64 {
        let attributes = self.metadata.iter().flat_map(|(name, value)| [name, value]);
        let texts = [&self.name, &self.path, &self.owner, &self.group].into_iter();
        let texts = texts.chain(&self.symlink_target).chain(attributes);
        texts.map(|text| (size_of::<String>() + text.len()) as u64).sum()
    }
}

fn type_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "FILE_TYPE_FILE",
        FileKind::Directory => "FILE_TYPE_DIRECTORY",
        FileKind::Link => "FILE_TYPE_SYMLINK",
        FileKind::Other => "FILE_TYPE_UNSPECIFIED",
    }
}

/// The metadata among extended attributes.
fn metadata(attributes: Vec<Attribute>) -> BTreeMap<String, String> {
    let own = |attribute: Attribute| {
        let name = attribute.name.to_text().strip_prefix(ATTRIBUTE)?.to_owned();
        Some((name, String::from_utf8(attribute.value.0).ok()?))
    };
    attributes.into_iter().filter_map(own).collect()
}

/// Type and permissions of a file, as `ls -l` shows them.
fn permissions(kind: FileKind, mode: u32) -> String {
    let mut shown = String::from(match kind {
        FileKind::File | FileKind::Other => "-",
        FileKind::Directory => "d",
        FileKind::Link => "l",
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        shown.push(if bits & 4 != 0 { 'r' } else { '-' });
        shown.push(if bits & 2 != 0 { 'w' } else { '-' });
        shown.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    shown
}

#[cfg(test)]
mod tests {
    use dorm_agent_client::{FileStat, GuestBytes, LinkTarget};
    use serde_json::json;

    use super::*;

    fn entry(kind: FileKind, target: Option<LinkTarget>) -> serde_json::Value {
        let stat = FileStat {
            kind,
            size: 5_000_000_000,
            mode: 0o100_644,
            uid: 1000,
            gid: 4711,
            owner: Some("user".to_owned()),
            group: None,
            modified_unix_ms: 1_700_000_000_123,
            link: (kind == FileKind::Link).then(|| "../x".try_into().unwrap()),
        };
        let attribute =
            |name: &str, value: &[u8]| Attribute { name: name.try_into().unwrap(), value: GuestBytes(value.to_vec()) };
        let attributes =
            vec![attribute("user.e2b.a", b"1"), attribute("user.other", b"2"), attribute("user.e2b.b", b"\xff")];
        let found = DetailedEntry { path: "/home/user/a".try_into().unwrap(), stat, target, attributes };
        serde_json::to_value(Entry::of(found)).unwrap()
    }

    #[test]
    fn an_entry_has_the_fields_that_clients_expect() {
        assert_eq!(
            entry(FileKind::File, None),
            json!({
                "name": "a", "type": "FILE_TYPE_FILE", "path": "/home/user/a", "size": "5000000000", "mode": 420,
                "permissions": "-rw-r--r--", "owner": "user", "group": "4711",
                "modifiedTime": "2023-11-14T22:13:20.123Z", "metadata": { "a": "1" },
            })
        );
    }

    #[test]
    fn a_link_has_the_type_of_its_target() {
        let target = LinkTarget { path: "/x".try_into().unwrap(), kind: FileKind::Directory };
        let whole = entry(FileKind::Link, Some(target));
        assert_eq!((&whole["type"], &whole["symlinkTarget"]), (&json!("FILE_TYPE_DIRECTORY"), &json!("/x")));
        assert_eq!((&whole["isSymlink"], &whole["permissions"]), (&json!(true), &json!("lrw-r--r--")));
        let broken = entry(FileKind::Link, None);
        assert_eq!((&broken["type"], &broken["symlinkTarget"]), (&json!("FILE_TYPE_SYMLINK"), &json!("../x")));
    }

    #[test]
    fn permissions_look_as_ls_shows_them() {
        for (kind, mode, shown) in [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::File, 0o4755, "-rwsr-xr-x"),
            (FileKind::File, 0o6640, "-rwSr-S---"),
            (FileKind::Directory, 0o1776, "drwxrwxrwT"),
            (FileKind::Other, 0, "----------"),
        ] {
            assert_eq!(permissions(kind, mode), shown);
        }
    }
}
