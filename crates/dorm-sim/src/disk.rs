//! The content of a directory after a loss of power.
//!
//! After each sync the storage reports the file whose content, or the directory whose names, are
//! durable. Everything else is lost or kept by chance, for each inode separately: a rename without
//! a sync may be visible or not, a removed file may come back, the content of a file is complete,
//! partial or missing. Durable content is never touched.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::trace::Trace;

/// An inode's number.
type Inode = u64;

#[derive(Clone, Debug)]
enum Durable {
    File(Vec<u8>),
    Directory(BTreeMap<String, Inode>),
    /// The mark of a removed file in a layer.
    Gone,
}

/// The durable content below one directory.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    known: BTreeMap<Inode, Durable>,
}

impl Disk {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, known: BTreeMap::new() }
    }

    /// Notes that the present content of the file, or the present names in the directory, are
    /// durable.
    pub(crate) fn durable(&mut self, path: &Path) {
        if !path.starts_with(&self.root) {
            return;
        }
        // A path that cannot be read was removed meanwhile, so nothing of it has to survive.
        if let Ok((inode, durable)) = read(path) {
            self.known.insert(inode, durable);
        }
    }

    /// The power fails and comes back.
    pub(crate) fn lose_power(&mut self, random: &mut Random, trace: &Trace) -> io::Result<()> {
        let root = self.root.clone();
        self.settle(&root, random, trace)?;
        self.known.clear();
        self.learn(&root)
    }

    /// Notes that all present content is durable.
    pub(crate) fn learn(&mut self, path: &Path) -> io::Result<()> {
        let (inode, durable) = read(path)?;
        if let Durable::Directory(names) = &durable {
            for name in names.keys() {
                self.learn(&path.join(name))?;
            }
        }
        self.known.insert(inode, durable);
        Ok(())
    }

    fn settle(&mut self, directory: &Path, random: &mut Random, trace: &Trace) -> io::Result<()> {
        let (inode, Durable::Directory(now)) = read(directory)? else { return Ok(()) };
        let before = match self.known.get(&inode) {
            Some(Durable::Directory(names)) => names.clone(),
            Some(Durable::File(_) | Durable::Gone) | None => BTreeMap::new(),
        };
        if before != now {
            let wanted = choose(&before, &now, random);
            self.rearrange(directory, &now, &wanted, trace)?;
        }
        let (_, Durable::Directory(left)) = read(directory)? else { return Ok(()) };
        for name in left.keys() {
            let path = directory.join(name);
            if path.is_dir() {
                self.settle(&path, random, trace)?;
            } else {
                self.settle_file(&path, random, trace)?;
            }
        }
        Ok(())
    }

    fn settle_file(&mut self, path: &Path, random: &mut Random, trace: &Trace) -> io::Result<()> {
        let (inode, Durable::File(content)) = read(path)? else { return Ok(()) };
        let durable = match self.known.get(&inode) {
            Some(Durable::File(durable)) => Some(durable.clone()),
            Some(Durable::Directory(_) | Durable::Gone) | None => None,
        };
        if durable.as_ref() == Some(&content) || random.chance(30) {
            return Ok(());
        }
        let left = durable.unwrap_or_else(|| {
            let length = usize::try_from(random.below(content.len() as u64)).unwrap_or_default();
            content[..length].to_vec()
        });
        trace.note(format_args!("power: {} is left with {} bytes", path.display(), left.len()));
        fs::write(path, left)
    }

    /// Turns the names `now` into the names `wanted`.
    fn rearrange(
        &mut self,
        directory: &Path,
        now: &BTreeMap<String, Inode>,
        wanted: &BTreeMap<String, Inode>,
        trace: &Trace,
    ) -> io::Result<()> {
        let aside = |inode: Inode| directory.join(format!(".aside-{inode}"));
        for (name, inode) in now {
            if wanted.get(name) != Some(inode) {
                trace.note(format_args!("power: {} is not there", directory.join(name).display()));
                fs::rename(directory.join(name), aside(*inode))?;
            }
        }
        for (name, inode) in wanted {
            if now.get(name) == Some(inode) {
                continue;
            }
            let path = directory.join(name);
            trace.note(format_args!("power: {} is there again", path.display()));
            if aside(*inode).exists() {
                fs::rename(aside(*inode), path)?;
            } else {
                self.make(&path, *inode)?;
            }
        }
        for inode in now.values() {
            let aside = aside(*inode);
            if aside.is_dir() {
                fs::remove_dir_all(aside)?;
            } else if aside.exists() {
                fs::remove_file(aside)?;
            }
        }
        Ok(())
    }

    /// Restores a removed file or directory with its durable content.
    fn make(&mut self, path: &Path, inode: Inode) -> io::Result<()> {
        match self.known.get(&inode).cloned() {
            Some(Durable::File(content)) => fs::write(path, content)?,
            Some(Durable::Gone) => {
                let device = rustix::fs::FileType::CharacterDevice;
                rustix::fs::mknodat(rustix::fs::CWD, path, device, rustix::fs::Mode::empty(), 0)?;
            }
            Some(Durable::Directory(names)) => {
                fs::create_dir(path)?;
                for (name, inode) in names {
                    self.make(&path.join(name), inode)?;
                }
            }
            // Its name was durable, but nothing in it: an empty directory or file.
            None => fs::create_dir(path)?,
        }
        self.learn(path)
    }
}

fn read(path: &Path) -> io::Result<(Inode, Durable)> {
    let facts = fs::symlink_metadata(path)?;
    if facts.file_type().is_char_device() {
        return Ok((facts.ino(), Durable::Gone));
    }
    if !facts.is_dir() {
        return Ok((facts.ino(), Durable::File(fs::read(path)?)));
    }
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        names.insert(entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.ino());
    }
    Ok((facts.ino(), Durable::Directory(names)))
}

/// Keeps either the durable or the present names of each inode.
fn choose(
    before: &BTreeMap<String, Inode>,
    now: &BTreeMap<String, Inode>,
    random: &mut Random,
) -> BTreeMap<String, Inode> {
    let names = |all: &BTreeMap<String, Inode>, inode: Inode| -> Vec<String> {
        all.iter().filter(|(_, of)| **of == inode).map(|(name, _)| name.clone()).collect()
    };
    let mut chosen = BTreeMap::new();
    let mut seen = Vec::new();
    // By name, since inode numbers differ from run to run.
    for inode in now.iter().chain(before).map(|(_, inode)| *inode) {
        if seen.contains(&inode) {
            continue;
        }
        seen.push(inode);
        let (old, new) = (names(before, inode), names(now, inode));
        let kept = if old == new || random.chance(50) { new } else { old };
        for name in kept {
            chosen.entry(name).or_insert(inode);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Echo;

    /// Prepares a directory with a durable file `kept`, loses power, and returns the files that are
    /// left.
    async fn lose(seed: u64, prepare: impl Fn(&Path, &mut Disk)) -> Vec<(String, Vec<u8>)> {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut disk = Disk::new(root.to_owned());
        fs::write(root.join("kept"), b"kept").unwrap();
        disk.learn(root).unwrap();
        prepare(root, &mut disk);
        let trace = Trace::new(root.display().to_string(), Echo::Off);
        disk.lose_power(&mut Random::new(seed), &trace).unwrap();
        let Durable::Directory(names) = read(root).unwrap().1 else { panic!("a directory") };
        names.into_keys().map(|name| (name.clone(), fs::read(root.join(name)).unwrap())).collect()
    }

    #[tokio::test]
    async fn what_was_said_to_be_durable_is_never_lost_and_the_rest_sometimes_is() {
        let mut results = Vec::new();
        for seed in 0..50 {
            let left = lose(seed, |root, disk| {
                fs::write(root.join("file"), b"some bytes").unwrap();
                fs::write(root.join("synced"), b"synced").unwrap();
                disk.durable(&root.join("synced"));
            })
            .await;
            assert!(left.contains(&("kept".to_owned(), b"kept".to_vec())));
            for (name, content) in &left {
                assert!(name != "synced" || content == b"synced");
            }
            results.push(left);
        }
        assert!(results.iter().any(|left| left.iter().any(|(name, content)| name == "file" && content.len() < 10)));
        assert!(results.iter().any(|left| left.iter().all(|(name, _)| name != "file")));
        assert!(results.iter().any(|left| left.contains(&("file".to_owned(), b"some bytes".to_vec()))));
    }

    #[tokio::test]
    async fn a_rename_that_was_not_synced_is_seen_or_not_and_a_removal_too() {
        let mut results = Vec::new();
        for seed in 0..50 {
            results.push(lose(seed, |root, _| fs::rename(root.join("kept"), root.join("renamed")).unwrap()).await);
            results.push(lose(seed, |root, _| fs::remove_file(root.join("kept")).unwrap()).await);
        }
        for left in &results {
            assert!(
                left.iter().all(|(name, content)| ["kept", "renamed"].contains(&name.as_str()) && content == b"kept")
            );
            assert!(left.len() <= 1);
        }
        for name in ["kept", "renamed"] {
            assert!(results.iter().any(|left| left.iter().any(|(there, _)| there == name)));
        }
        assert!(results.iter().any(Vec::is_empty));
    }
}
