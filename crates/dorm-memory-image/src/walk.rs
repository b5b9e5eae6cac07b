//! Walks the trees and emits one entry after the other.
//!
//! The walk is iterative, and uses every object of the image once: a forged image cannot make it
//! loop, or turn a small image into a large result.

use std::collections::BTreeMap;

use dorm_engine::{Content, Entry, EntryKind, FileSink, LeftOut, NoContent};

use crate::budget::Budget;
use crate::error::MemoryImageError;
use crate::graph::{Graph, Place};
use crate::pages::{FileContent, Source};
use crate::tree::{self, Facts, Kind, Tree};
use crate::wire::Value;

const NAME_MAX: usize = 255;
pub(crate) const PATH_MAX: usize = 4095;
/// The memory of an entry: in the list of its directory and in the list of names, which grow to
/// twice their lengths.
const CHILD_BYTES: u64 = 2 * (size_of::<(&[u8], Place<'_>)>() + size_of::<Name<'_>>()) as u64;
/// The location of the second tree.
const TMP: &[u8] = b"tmp";

/// The name of an emitted entry, and its directory. The paths of hard links are built from these.
#[derive(Clone, Copy)]
struct Name<'a> {
    parent: usize,
    name: &'a [u8],
}

/// A directory whose entries are being emitted.
struct Level<'a, 's> {
    tree: &'s Tree<'a, 's>,
    /// The remaining entries; the next one is last.
    children: Vec<(&'a [u8], Place<'a>)>,
    name: usize,
    path_length: usize,
}

/// One pass through the trees of an image.
pub(crate) struct Walk<'a, 's> {
    graph: &'s Graph<'a>,
    source: Source,
    sink: &'s mut dyn FileSink,
    budget: &'s Budget,
    entry: Entry,
    names: Vec<Name<'a>>,
    /// For each object of the graph: whether it was used.
    used: Vec<bool>,
    /// For each object of the graph: the index of the inode's first name, plus one.
    first: Vec<usize>,
    left: LeftOut,
}

impl<'a, 's> Walk<'a, 's> {
    pub(crate) fn new(graph: &'s Graph<'a>, source: Source, sink: &'s mut dyn FileSink, budget: &'s Budget) -> Self {
        Self {
            graph,
            source,
            sink,
            budget,
            entry: blank(),
            names: Vec::new(),
            used: vec![false; graph.len()],
            first: vec![0; graph.len()],
            left: LeftOut::default(),
        }
    }

    /// Emits all of `upper`, with `tmp` in place of the entry of that name.
    pub(crate) fn run(
        mut self,
        upper: &'s Tree<'a, 's>,
        tmp: Option<&'s Tree<'a, 's>>,
    ) -> Result<LeftOut, MemoryImageError> {
        self.names.push(Name { parent: 0, name: b"" });
        let mut levels = Vec::new();
        levels.extend(self.visit(upper, upper.root, 0)?);
        let mut tmp = tmp;
        while let Some(level) = levels.last_mut() {
            self.entry.path.truncate(level.path_length);
            let is_top = level.name == 0;
            // The second tree comes at the position of its name.
            let is_tmp_next = is_top && level.children.last().is_none_or(|(name, _)| *name >= TMP);
            let (tree, name, dentry) = match tmp.filter(|_| is_tmp_next) {
                Some(other) => {
                    tmp = None;
                    level.children.pop_if(|(name, _)| *name == TMP);
                    (other, TMP, other.root)
                }
                None => match level.children.pop() {
                    Some((name, dentry)) => (level.tree, name, dentry),
                    None => {
                        levels.pop();
                        continue;
                    }
                },
            };
            let parent = level.name;
            if !is_top {
                self.entry.path.push(b'/');
            }
            self.entry.path.extend_from_slice(name);
            if self.entry.path.len() > PATH_MAX {
                return Err(MemoryImageError::unsound("a path is longer than the maximum path length"));
            }
            self.budget.take_entry(&self.entry.path)?;
            self.names.push(Name { parent, name });
            let name = self.names.len() - 1;
            levels.extend(self.visit(tree, dentry, name)?);
        }
        Ok(self.left)
    }

    /// Emits one entry, and returns its children if it is a directory.
    fn visit(
        &mut self,
        tree: &'s Tree<'a, 's>,
        dentry: Place<'a>,
        name: usize,
    ) -> Result<Option<Level<'a, 's>>, MemoryImageError> {
        self.use_up(dentry.object)?;
        let facts = tree.facts(self.graph, dentry)?;
        match facts.kind {
            Kind::Socket => {
                self.left.sockets += 1;
                return self.give_nothing(&facts).map(|()| None);
            }
            Kind::Device => {
                self.left.devices += 1;
                return self.give_nothing(&facts).map(|()| None);
            }
            Kind::Directory { .. } if facts.object != dentry.object => {
                return Err(MemoryImageError::unsound("a directory has more than one parent"));
            }
            _ => {}
        }
        let Some(kind) = facts.entry_kind() else { return Ok(None) };
        self.describe(&facts, kind);
        match facts.kind {
            Kind::Whiteout => (self.entry.mode, self.entry.modified) = (0, (0, 0)),
            Kind::Directory { .. } => {}
            _ => {
                if let Some(first) = self.first_name(facts.object, name) {
                    self.entry.kind = EntryKind::HardLink(first);
                    self.give(None)?;
                    return Ok(None);
                }
            }
        }
        if !matches!(facts.kind, Kind::Whiteout)
            && let Some(object) = facts.attributes(self.graph, &mut self.entry.attributes)?
        {
            self.use_up(object)?;
        }
        self.give(Some((tree, &facts)))?;
        self.children(tree, &facts, name)
    }

    /// Emits a removal for an omitted entry: what the image had at its path does not exist any
    /// more.
    fn give_nothing(&mut self, facts: &Facts<'a>) -> Result<(), MemoryImageError> {
        self.describe(facts, EntryKind::Removed);
        (self.entry.mode, self.entry.modified) = (0, (0, 0));
        self.give(None)
    }

    fn describe(&mut self, facts: &Facts<'a>, kind: EntryKind) {
        self.entry.kind = kind;
        self.entry.mode = facts.mode;
        self.entry.user = facts.user;
        self.entry.group = facts.group;
        self.entry.modified = facts.modified;
        self.entry.attributes.clear();
    }

    /// Passes the entry to the sink, with its content if it is a non-empty file.
    fn give(&mut self, of: Option<(&'s Tree<'a, 's>, &Facts<'a>)>) -> Result<(), MemoryImageError> {
        let mut file;
        let mut content: &mut dyn Content = &mut NoContent;
        if let (Some((tree, facts)), &EntryKind::File { bytes }) = (of, &self.entry.kind) {
            let segments = facts.segments(self.graph)?;
            if let Some((object, _)) = segments {
                self.use_up(object)?;
            }
            let segments = segments.map(|(_, items)| items);
            file = FileContent::new(self.graph, tree.memory, &mut self.source, segments, bytes);
            content = &mut file;
        }
        self.sink
            .take(&self.entry, content)
            .map_err(|source| MemoryImageError::Sink { path: self.entry.path.escape_ascii().to_string(), source })
    }

    /// Checks that the object has not been used before.
    fn use_up(&mut self, object: usize) -> Result<(), MemoryImageError> {
        match self.used.get_mut(object) {
            Some(used @ false) => {
                *used = true;
                Ok(())
            }
            _ => Err(MemoryImageError::unsound("an object is used in two places")),
        }
    }

    /// Returns the path under which the inode was emitted first; if there is none, `name` becomes
    /// its first.
    fn first_name(&mut self, object: usize, name: usize) -> Option<Vec<u8>> {
        let first = self.first.get_mut(object)?;
        match first.checked_sub(1) {
            Some(first) => Some(self.path_of(first)),
            None => {
                *first = name + 1;
                None
            }
        }
    }

    fn path_of(&self, name: usize) -> Vec<u8> {
        let mut path = Vec::new();
        let mut next = name;
        // Parents always precede their children, so this ends at the root, which is 0.
        while next != 0 {
            let Some(Name { parent, name }) = self.names.get(next) else { break };
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name.iter().rev());
            next = *parent;
        }
        path.reverse();
        path
    }

    fn children(
        &mut self,
        tree: &'s Tree<'a, 's>,
        facts: &Facts<'a>,
        name: usize,
    ) -> Result<Option<Level<'a, 's>>, MemoryImageError> {
        let Kind::Directory { children: field, .. } = facts.kind else { return Ok(None) };
        let mut children = Vec::new();
        if let Some((object, mut pairs)) = self.graph.pairs(field)? {
            self.use_up(object)?;
            while let Some((name, value)) = self.graph.pair(&mut pairs)? {
                let Value::Ref(reference) = value else {
                    return Err(MemoryImageError::different("an entry of a directory is not a pointer"));
                };
                if !is_component(name) {
                    return Err(MemoryImageError::unsound(format!(
                        "'{}' is not a valid file name",
                        name.escape_ascii()
                    )));
                }
                self.budget.take_memory(CHILD_BYTES)?;
                children.push((name, tree::child(self.graph, &reference, name)?));
            }
        }
        children.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
        if children.array_windows().any(|[(one, _), (other, _)]| one == other) {
            return Err(MemoryImageError::unsound("two entries of a directory have the same name"));
        }
        Ok(Some(Level { tree, children, name, path_length: self.entry.path.len() }))
    }
}

/// Returns an entry to be filled.
pub(crate) fn blank() -> Entry {
    Entry {
        path: Vec::new(),
        kind: EntryKind::Removed,
        mode: 0,
        user: 0,
        group: 0,
        modified: (0, 0),
        attributes: BTreeMap::new(),
    }
}

/// Returns whether `name` is a normal path component that does not lead elsewhere.
pub(crate) fn is_component(name: &[u8]) -> bool {
    let is_special = matches!(name, b"" | b"." | b"..");
    !is_special && name.len() <= NAME_MAX && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}
