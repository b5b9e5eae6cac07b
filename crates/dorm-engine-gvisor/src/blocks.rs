//! Whether files can share blocks, asked of the file system by doing it.

#![allow(clippy::disallowed_methods, reason = "nothing else runs before the engine is open")]

use std::fs;
use std::io;
use std::path::Path;

/// Returns whether files in `directory` can share blocks with copies of them.
pub(crate) fn are_shared(directory: &Path) -> bool {
    let share = || -> io::Result<()> {
        let (from, to) = (unnamed(directory, "blocks-from")?, unnamed(directory, "blocks-to")?);
        rustix::io::write(&from, &[1; 4096])?;
        Ok(rustix::fs::ioctl_ficlone(&to, &from)?)
    };
    share().is_ok()
}

/// Creates a file that has no name any more.
fn unnamed(directory: &Path, name: &str) -> io::Result<fs::File> {
    let path = directory.join(name);
    let file = fs::File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_whether_blocks_can_be_shared_or_not() {
        let directory = tempfile::tempdir().unwrap();
        are_shared(directory.path());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(!are_shared(&directory.path().join("missing")));
    }
}
