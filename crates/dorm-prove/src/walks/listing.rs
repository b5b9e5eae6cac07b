//! The files that a sandbox has in its trees, read by one command that needs only `find`, `stat`,
//! `cksum`, `readlink` and a shell.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use dorm_testing::Daemon;

use super::tree::{ROOTS, is_of_image};

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;

/// The compared properties of a file.
pub(super) struct File<'a> {
    pub(super) mode: u32,
    pub(super) owner: u32,
    /// The number of its names.
    pub(super) names: u64,
    pub(super) bytes: u64,
    pub(super) modified: u64,
    pub(super) sum: u32,
    /// The first of its names in the listing.
    pub(super) first: &'a str,
}

pub(super) fn directory(mode: u32, owner: u32) -> String {
    format!("directory {mode:o} of {owner}")
}

pub(super) fn link(target: &str) -> String {
    format!("link to {target}")
}

pub(super) fn file(file: &File<'_>) -> String {
    let File { mode, owner, names, bytes, modified, sum, first } = file;
    format!("file {mode:o} of {owner}, {bytes} bytes, sum {sum}, changed {modified}, {names} names, first {first}")
}

/// One file, directory or link as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    /// Type and mode.
    pub(super) kind: u32,
    pub(super) owner: u32,
    names: u64,
    bytes: u64,
    pub(super) modified: u64,
    /// Device and inode number: equal for all names of one file.
    inode: (u64, u64),
    sum: u32,
    pub(super) target: String,
}

impl Found {
    pub(super) fn is_directory(&self) -> bool {
        self.kind & S_IFMT == S_IFDIR
    }

    pub(super) fn is_link(&self) -> bool {
        self.kind & S_IFMT == S_IFLNK
    }

    pub(super) fn mode(&self) -> u32 {
        self.kind & !S_IFMT
    }
}

/// The content of the trees of the running sandbox `id`, by path.
pub(super) async fn found(daemon: &Daemon, id: &str) -> Result<BTreeMap<String, Found>> {
    let roots = ROOTS.join(" ");
    let script = format!(
        "find {roots} -exec stat -c 's|%f|%u|%g|%h|%s|%Y|%d|%i|%n' {{}} + 2>/dev/null; \
         find {roots} -type f -exec cksum {{}} + 2>/dev/null; \
         find {roots} -type l -exec sh -c 'for p; do printf \"l|%s|%s\\n\" \"$(readlink -- \"$p\")\" \"$p\"; done' - {{}} + \
         2>/dev/null; true"
    );
    let (code, text) = daemon.exec(id, &["/bin/sh", "-c", &script]).await.context("list files")?;
    if code != 0 {
        bail!("listing the files of sandbox {id} ended with {code}: {text}");
    }
    read(&text).with_context(|| format!("read the list of files of sandbox {id}: {text}"))
}

fn read(text: &str) -> Result<BTreeMap<String, Found>> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("s|") {
            let words: Vec<&str> = line.splitn(9, '|').collect();
            let [kind, user, group, names, bytes, modified, device, inode, path] = words.as_slice() else {
                bail!("the line '{line}'")
            };
            if user != group {
                bail!("{path} is of user {user} and group {group}");
            }
            let found = Found {
                kind: u32::from_str_radix(kind, 16)?,
                owner: user.parse()?,
                names: names.parse()?,
                bytes: bytes.parse()?,
                modified: modified.parse()?,
                inode: (device.parse()?, inode.parse()?),
                sum: 0,
                target: String::new(),
            };
            all.insert((*path).to_owned(), found);
        } else if let Some(line) = line.strip_prefix("l|") {
            let (target, path) = line.split_once('|').context("the target of a link")?;
            all.get_mut(path).with_context(|| format!("no facts of {path}"))?.target = target.to_owned();
        } else {
            let mut words = line.splitn(3, ' ');
            let (sum, bytes, path) = (words.next(), words.next(), words.next());
            let path = path.context("the name of a file")?;
            let found = all.get_mut(path).with_context(|| format!("no facts of {path}"))?;
            found.sum = sum.unwrap_or_default().parse().context("the checksum of a file")?;
            if Some(found.bytes) != bytes.and_then(|bytes| bytes.parse().ok()) {
                bail!("{path} has {} bytes, of which {bytes:?} can be read", found.bytes);
            }
        }
    }
    Ok(all)
}

/// The description of each path, in the same form as the model's.
pub(super) fn listing(all: &BTreeMap<String, Found>) -> BTreeMap<String, String> {
    let mut listed: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    // Each directory has an inode number of its own.
    for (path, found) in all.iter().filter(|(_, found)| !found.is_directory() && !found.is_link()) {
        listed.entry(found.inode).or_default().push(path);
    }
    let facts = |(path, found): (&String, &Found)| {
        let listed = listed.get(&found.inode).map_or(&[][..], Vec::as_slice);
        let first = listed.first().copied().unwrap_or_default();
        let facts = if found.is_directory() {
            directory(found.mode(), found.owner)
        } else if found.is_link() {
            link(&found.target)
        } else {
            let &Found { owner, bytes, modified, sum, .. } = found;
            // Images of one host share files by hard links, and sandboxes see all these names.
            let names = if is_of_image(path) { listed.len() as u64 } else { found.names };
            file(&File { mode: found.mode(), owner, names, bytes, modified, sum, first })
        };
        (path.clone(), facts)
    };
    all.iter().map(facts).collect()
}

/// Some of the differences between the found and the expected content.
pub(super) fn differences(found: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> Vec<String> {
    let paths = wanted.keys().chain(found.keys().filter(|path| !wanted.contains_key(*path)));
    let nothing = "nothing".to_owned();
    let difference = |path: &String| {
        let (found, wanted) = (found.get(path).unwrap_or(&nothing), wanted.get(path).unwrap_or(&nothing));
        (found != wanted).then(|| format!("{path} is {found} instead of {wanted}"))
    };
    paths.filter_map(difference).take(8).collect()
}

/// The checksum that `cksum` computes.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let length = bytes.len().to_le_bytes();
    let significant = length.len() - length.iter().rev().take_while(|byte| **byte == 0).count();
    let sum = bytes.iter().chain(&length[..significant]).fold(0_u32, |sum, byte| {
        (0..8).fold(sum ^ (u32::from(*byte) << 24), |sum, _| (sum << 1) ^ if sum >> 31 == 1 { 0x04C1_1DB7 } else { 0 })
    });
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_program() {
        assert_eq!(checksum(b""), 4_294_967_295);
        assert_eq!(checksum(b"123456789"), 930_766_865);
    }

    #[test]
    fn names_with_spaces_and_bars_are_read_whole() {
        let text = "s|81a4|0|0|1|5|77|2|9|/walk/b c|d\n123 5 /walk/b c|d\n";
        let all = read(text).unwrap();
        assert_eq!(
            listing(&all)["/walk/b c|d"],
            "file 644 of 0, 5 bytes, sum 123, changed 77, 1 names, first /walk/b c|d"
        );
    }
}
