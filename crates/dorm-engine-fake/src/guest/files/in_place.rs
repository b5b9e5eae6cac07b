//! Writes in place, new directories and extended attributes.

use dorm_agent_proto::{Attribute, Failure, FileStat, GuestPath, GuestString, Parents, WriteAt, WriteOptions};

use super::{Files, Stamp, normal, volumes};

impl Files {
    /// Writes into a file, which keeps its owner and mode unless `options` says otherwise.
    pub(crate) fn write_in_place(
        &mut self,
        path: &GuestPath,
        at: WriteAt,
        bytes: &[u8],
        options: &WriteOptions,
        stamp: Stamp,
    ) -> Result<FileStat, Failure> {
        let before = match self.read(path) {
            Ok(before) => Some(before.into_owned()),
            Err(Failure::NotFound { .. }) => None,
            Err(failure) => return Err(failure),
        };
        let mut whole = before.clone().unwrap_or_default();
        let from = match at {
            WriteAt::Emptied => {
                whole.clear();
                0
            }
            WriteAt::End => whole.len(),
            WriteAt::Offset(offset) => usize::try_from(offset).unwrap_or(usize::MAX),
        };
        let room = usize::try_from(self.disk().0).unwrap_or(usize::MAX);
        let end = from.saturating_add(bytes.len());
        if end > room {
            return Err(Failure::NoSpace { path: path.clone() });
        }
        if whole.len() < end && !bytes.is_empty() {
            whole.resize(end, 0);
        }
        if !bytes.is_empty() {
            whole[from..end].copy_from_slice(bytes);
        }
        let kept = self.nodes.get(&normal(path)).map(|node| (node.uid, node.gid, node.attributes.clone()));
        let (stamp, attributes) = match kept {
            Some((uid, gid, attributes)) if options.owner.is_none() => (Stamp { uid, gid, ..stamp }, attributes),
            Some((.., attributes)) => (stamp, attributes),
            None => (stamp, Vec::new()),
        };
        let stat = self.write(path, whole, options.mode, stamp, options.parents)?;
        if let Some(node) = self.nodes.get_mut(&normal(path)) {
            node.attributes = attributes;
        }
        Ok(stat)
    }

    /// Creates a directory that must not exist, and its missing parents.
    pub(crate) fn make_new_directory(&mut self, path: &GuestPath, stamp: Stamp) -> Result<FileStat, Failure> {
        if self.stat(path).is_ok() {
            return Err(Failure::Exists { path: path.clone() });
        }
        self.make_directory(path, Parents::Create, stamp)
    }

    /// Returns the extended attributes of a file, ordered by name.
    pub(crate) fn attributes(&self, path: &GuestPath) -> Result<Vec<Attribute>, Failure> {
        match self.outside(path) {
            Some(outside) => outside.stat().map(|_| Vec::new()),
            None => self.node(path).map(|node| node.attributes.clone()),
        }
    }

    /// Sets attributes, then removes others, and returns all that the file has then.
    pub(crate) fn set_attributes(
        &mut self,
        path: &GuestPath,
        set: Vec<Attribute>,
        remove: &[GuestString],
    ) -> Result<Vec<Attribute>, Failure> {
        if let Some(bad) = set.iter().map(|one| &one.name).chain(remove).find(|name| !is_name(name)) {
            let reason = format!("the attribute '{bad}' does not begin with user. or is longer than 255 bytes");
            return Err(Failure::Invalid { reason });
        }
        if self.outside(path).is_some() {
            return Err(volumes::other("set attributes of", path, "its file system has no attributes".to_owned()));
        }
        self.node(path)?;
        let Some(node) = self.nodes.get_mut(&normal(path)) else {
            return Err(Failure::NotFound { path: path.clone() });
        };
        for one in set {
            node.attributes.retain(|other| other.name != one.name);
            node.attributes.push(one);
        }
        node.attributes.retain(|one| !remove.contains(&one.name));
        node.attributes.sort();
        Ok(node.attributes.clone())
    }
}

fn is_name(name: &GuestString) -> bool {
    let rest = name.as_bytes().strip_prefix(Attribute::PREFIX.as_bytes());
    rest.is_some_and(|rest| !rest.is_empty()) && name.as_bytes().len() <= 255
}
