//! Resolves users of an image that are named together with a group, using the image's own lists.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

const LIST_BYTES_MAX: u64 = 1 << 20;

/// Converts `USER:GROUP` to `UID:GID`, using the lists in `rootfs`; returns everything else
/// unchanged.
pub(super) fn numbered(rootfs: &Path, user: String) -> String {
    if !user.contains(':') {
        return user;
    }
    numbered_user(&user, &read(rootfs, "etc/passwd"), &read(rootfs, "etc/group")).unwrap_or(user)
}

/// Converts `USER:GROUP` to `UID:GID`, using these texts of `/etc/passwd` and `/etc/group`; `None`
/// if they lack an entry.
pub fn numbered_user(user: &str, passwd: &str, group: &str) -> Option<String> {
    let (name, of) = user.split_once(':')?;
    let id = |text: &str, list: &str| text.parse::<u32>().ok().or_else(|| find(list, text));
    Some(format!("{}:{}", id(name, passwd)?, id(of, group)?))
}

fn find(list: &str, name: &str) -> Option<u32> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Returns the content of a file of the image, following links. A missing file is empty.
fn read(rootfs: &Path, path: &str) -> String {
    let open = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, rootfs, flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
    };
    let mut text = Vec::new();
    if let Ok(file) = open() {
        let _ = File::from(file).take(LIST_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_group_is_looked_up_in_the_image() {
        let rootfs = tempfile::tempdir().unwrap();
        std::fs::create_dir(rootfs.path().join("etc")).unwrap();
        std::fs::write(rootfs.path().join("etc/passwd"), "root:x:0:0::/:\nann:x:1000:100::/:\n").unwrap();
        std::fs::write(rootfs.path().join("etc/group"), "root:x:0:\naudio:x:29:\n").unwrap();
        for (user, expected) in [
            ("ann", "ann"),
            ("ann:audio", "1000:29"),
            ("7:audio", "7:29"),
            ("ann:3", "1000:3"),
            ("7:8", "7:8"),
            ("eve:audio", "eve:audio"),
        ] {
            assert_eq!(numbered(rootfs.path(), user.to_owned()), expected);
        }
    }
}
