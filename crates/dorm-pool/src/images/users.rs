//! Users of an image that are named together with a group, which only its own lists can tell.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

const LIST_BYTES_MAX: u64 = 1 << 20;

/// `USER:GROUP` as `UID:GID`, as the lists in `rootfs` have it; everything else as it is.
pub(super) fn numbered(rootfs: &Path, user: String) -> String {
    if !user.contains(':') {
        return user;
    }
    numbered_user(&user, &read(rootfs, "etc/passwd"), &read(rootfs, "etc/group")).unwrap_or(user)
}

/// `USER:GROUP` as `UID:GID`, as `/etc/passwd` and `/etc/group` with these texts have it; none for what they do not tell.
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

/// A file of the image, whatever links lead to it. One that is missing is empty.
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
