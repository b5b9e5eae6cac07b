//! The expected files of a sandbox of a walk, to the last byte, and the shell commands that make
//! them.
//!
//! Hard links follow the rule of Linux's overlay file system, on which sandboxes stand: names of
//! one file in a layer below are one file until it is written to through one of them, which from
//! then on is a file of its own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The trees that are compared. The first two are made by a walk, the others belong to the image,
/// if it has them.
pub(super) const ROOTS: [&str; 4] = ["/walk", "/tmp/walk", "/etc/skel", "/etc/default"];
/// Returns whether a path is in a tree that belongs to the image.
pub(super) fn is_of_image(path: &str) -> bool {
    path.starts_with("/etc/")
}

/// The names of files in a tree; some are awkward on purpose.
const NAMES: [&str; 6] = ["a", "b c", "-d", "é", "it's", "f"];
const MODES: [u32; 5] = [0o644, 0o600, 0o755, 0o400, 0o1777];
const OWNERS: [u32; 3] = [0, 1000, 65534];
/// The length of files that are longer than a page.
const LONG: usize = 200_000;
/// The deepest nesting of directories.
const DEEP: usize = 5;
/// The most files in a tree.
const MANY: usize = 24;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Node {
    Directory { mode: u32, owner: u32 },
    File(u32),
    Link(String),
}

/// The content and attributes that all names of one file share.
#[derive(Clone, PartialEq, Eq, Debug)]
struct File {
    content: Vec<u8>,
    mode: u32,
    owner: u32,
    modified: u64,
    /// The number of its names in a layer below, if it is in one.
    below: Option<u64>,
}

/// Trees of files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
    files: BTreeMap<u32, File>,
    number: u32,
}

impl Tree {
    pub(super) fn add_directory(&mut self, path: &str, mode: u32, owner: u32) {
        self.nodes.insert(path.to_owned(), Node::Directory { mode, owner });
    }

    pub(super) fn add_link(&mut self, path: &str, target: &str) {
        self.nodes.insert(path.to_owned(), Node::Link(target.to_owned()));
    }

    /// A file of the image.
    pub(super) fn add_file(&mut self, path: &str, content: Vec<u8>, (mode, owner, modified): (u32, u32, u64)) {
        self.put(path, File { content, mode, owner, modified, below: Some(1) });
    }

    fn put(&mut self, path: &str, file: File) {
        self.number += 1;
        self.files.insert(self.number, file);
        self.nodes.insert(path.to_owned(), Node::File(self.number));
    }

    /// The same files after a boot: all of them are in layers below.
    pub(super) fn booted(&self) -> Self {
        let mut tree = self.clone();
        for (number, file) in &mut tree.files {
            file.below = file.below.or(Some(self.names(*number).count() as u64));
        }
        tree
    }

    /// The description of each path, in the same form as [`super::listing::listing`] reads it from
    /// a sandbox.
    pub(super) fn expected(&self) -> BTreeMap<String, String> {
        self.nodes.iter().map(|(path, node)| (path.clone(), self.facts(path, node))).collect()
    }

    fn facts(&self, path: &str, node: &Node) -> String {
        match node {
            Node::Directory { mode, owner } => super::listing::directory(*mode, *owner),
            Node::Link(target) => super::listing::link(target),
            Node::File(number) => {
                let Some(file) = self.files.get(number) else { return "no file".to_owned() };
                let here = self.names(*number).count() as u64;
                let names = if is_of_image(path) { here } else { file.below.unwrap_or(here) };
                let first = self.names(*number).next().unwrap_or_default();
                super::listing::file(&super::listing::File {
                    mode: file.mode,
                    owner: file.owner,
                    names,
                    bytes: file.content.len() as u64,
                    modified: file.modified,
                    sum: super::listing::checksum(&file.content),
                    first,
                })
            }
        }
    }

    fn names(&self, number: u32) -> impl Iterator<Item = &str> {
        let is_name = move |node: &Node| *node == Node::File(number);
        self.nodes.iter().filter(move |(_, node)| is_name(node)).map(|(path, _)| path.as_str())
    }

    /// Changes something at random, and adds the command for the same change to `script`.
    pub(super) fn change(&mut self, random: &mut fastrand::Rng, script: &mut String) {
        // Not every change is always possible.
        for _ in 0..20 {
            let done = match random.u32(0..100) {
                0..22 => self.write(random),
                22..32 => self.append(random),
                32..38 => self.resize(random),
                38..50 => self.delete(random),
                50..62 => self.rename(random),
                62..72 => self.make_directory(random),
                72..80 => self.set_mode(random),
                80..84 => self.set_owner(random),
                84..91 => self.make_link(random),
                _ => self.make_name(random),
            };
            if let Some(command) = done {
                script.push_str(&command);
                script.push('\n');
                return;
            }
        }
    }

    fn write(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let content = content(random);
        let (path, command) = match random.bool() {
            true => {
                let path = self.some_file(random)?;
                let command = format!("{} >{}", content.1, quoted(&path));
                self.own(&path)?.content = content.0;
                (path, command)
            }
            false => {
                let path = self.free(random)?;
                let command = format!("{} >{}", content.1, quoted(&path));
                self.put(&path, File { content: content.0, mode: 0o644, owner: 0, modified: 0, below: None });
                (path, command)
            }
        };
        self.touch(&path, random, command)
    }

    fn append(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.some_file(random)?;
        let (bytes, made) = content(random);
        self.own(&path)?.content.extend(bytes);
        self.touch(&path, random, format!("{made} >>{}", quoted(&path)))
    }

    fn resize(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.some_file(random)?;
        let length = random.usize(0..LONG);
        self.own(&path)?.content.resize(length, 0);
        self.touch(&path, random, format!("truncate -s {length} {}", quoted(&path)))
    }

    fn delete(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.some(random, |_| true)?;
        let inside = format!("{path}/");
        self.nodes.retain(|other, _| *other != path && !other.starts_with(&inside));
        self.forget_files();
        Some(format!("rm -rf -- {}", quoted(&path)))
    }

    fn rename(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let from = self.some(random, |_| true)?;
        let to = self.free(random)?;
        let inside = format!("{from}/");
        if to.starts_with(&inside) || ROOTS.contains(&from.as_str()) || ROOTS.contains(&to.as_str()) {
            return None;
        }
        let moved: Vec<String> =
            self.nodes.keys().filter(|path| **path == from || path.starts_with(&inside)).cloned().collect();
        // A file that cannot be renamed is copied, and so is no longer the same file as its other
        // names.
        let is_alone = |path: &String| match self.nodes.get(path) {
            Some(Node::File(number)) => self.names(*number).count() == 1,
            _ => true,
        };
        let stays_one = !is_place_of_memory(&from) && !is_place_of_memory(&to) && moved.len() == 1;
        if !stays_one && !moved.iter().all(is_alone) {
            return None;
        }
        for path in moved {
            self.own(&path);
            let node = self.nodes.remove(&path)?;
            self.nodes.insert(format!("{to}{}", &path[from.len()..]), node);
        }
        Some(format!("mv -T -- {} {}", quoted(&from), quoted(&to)))
    }

    fn make_directory(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.free(random)?;
        let mode = MODES[random.usize(0..MODES.len())];
        self.add_directory(&path, mode, 0);
        Some(format!("mkdir -- {0} && chmod {mode:o} {0}", quoted(&path)))
    }

    fn set_mode(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.some(random, |node| !matches!(node, Node::Link(_)))?;
        let mode = MODES[random.usize(0..MODES.len())];
        match self.nodes.get_mut(&path)? {
            Node::Directory { mode: had, .. } => *had = mode,
            Node::File(_) | Node::Link(_) => self.own(&path)?.mode = mode,
        }
        Some(format!("chmod {mode:o} {}", quoted(&path)))
    }

    fn set_owner(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.some(random, |node| !matches!(node, Node::Link(_)))?;
        let owner = OWNERS[random.usize(0..OWNERS.len())];
        match self.nodes.get_mut(&path)? {
            Node::Directory { owner: had, .. } => *had = owner,
            Node::File(_) | Node::Link(_) => self.own(&path)?.owner = owner,
        }
        Some(format!("chown {owner}:{owner} {}", quoted(&path)))
    }

    fn make_link(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.free(random)?;
        let target = ["/etc/hostname", "../nowhere", "a", "/walk"][random.usize(0..4)];
        self.add_link(&path, target);
        Some(format!("ln -s -- {target} {}", quoted(&path)))
    }

    /// Adds a hard link, but only to a file that root owns: the overlay of gVisor gives a file to
    /// the owner of its new name, so another owner would be lost.
    fn make_name(&mut self, random: &mut fastrand::Rng) -> Option<String> {
        let path = self.some_file(random)?;
        let name = self.free(random)?;
        if is_place_of_memory(&path) != is_place_of_memory(&name) {
            return None;
        }
        if matches!(self.nodes.get(&path)?, Node::File(number) if self.files.get(number)?.owner != 0) {
            return None;
        }
        self.own(&path)?;
        let node = self.nodes.get(&path)?.clone();
        self.nodes.insert(name.clone(), node);
        Some(format!("ln -- {} {}", quoted(&path), quoted(&name)))
    }

    /// The file of that name, for a change through it: a file in a layer below is copied, for this
    /// name alone.
    fn own(&mut self, path: &str) -> Option<&mut File> {
        let Some(Node::File(number)) = self.nodes.get(path) else { return None };
        let mut number = *number;
        if self.files.get(&number)?.below.is_some() {
            let file = File { below: None, ..self.files.get(&number)?.clone() };
            self.put(path, file);
            self.forget_files();
            number = self.number;
        }
        self.files.get_mut(&number)
    }

    /// Sets the time of change, so that it is known.
    fn touch(&mut self, path: &str, random: &mut fastrand::Rng, command: String) -> Option<String> {
        let modified = random.u64(1_000_000_000..1_700_000_000);
        self.own(path)?.modified = modified;
        Some(format!("{command} && touch -d @{modified} -- {}", quoted(path)))
    }

    fn forget_files(&mut self) {
        let named: Vec<u32> = self
            .nodes
            .values()
            .filter_map(|node| if let Node::File(number) = node { Some(*number) } else { None })
            .collect();
        self.files.retain(|number, _| named.contains(number));
    }

    fn some_file(&self, random: &mut fastrand::Rng) -> Option<String> {
        self.some(random, |node| matches!(node, Node::File(_)))
    }

    fn some(&self, random: &mut fastrand::Rng, is_wanted: impl Fn(&Node) -> bool) -> Option<String> {
        let paths: Vec<&String> = self.nodes.iter().filter(|(_, node)| is_wanted(node)).map(|(path, _)| path).collect();
        Some((*paths.get(random.usize(0..paths.len().max(1)))?).clone())
    }

    /// An unused path in an existing directory.
    fn free(&self, random: &mut fastrand::Rng) -> Option<String> {
        let root = ROOTS[random.usize(0..ROOTS.len())];
        if !self.nodes.contains_key(root) {
            return Some(root.to_owned());
        }
        let directory = self.some(random, |node| matches!(node, Node::Directory { .. }))?;
        let path = format!("{directory}/{}", NAMES[random.usize(0..NAMES.len())]);
        let fits = self.nodes.len() < MANY && path.matches('/').count() <= DEEP;
        (fits && !self.nodes.contains_key(&path)).then_some(path)
    }
}

/// Whether it is in a separate file system, in memory.
fn is_place_of_memory(path: &str) -> bool {
    path.starts_with("/tmp")
}

/// Random bytes, and the command that writes them.
fn content(random: &mut fastrand::Rng) -> (Vec<u8>, String) {
    if random.u32(0..4) == 0 {
        let (length, letter) = (random.usize(1..LONG), random.lowercase());
        let command = format!("head -c {length} /dev/zero | tr '\\0' {letter}");
        return (letter.to_string().repeat(length).into_bytes(), command);
    }
    let mut text = String::new();
    for _ in 0..random.usize(0..8) {
        let _ = write!(text, "{:016x} ", random.u64(..));
    }
    let command = format!("printf %s '{text}'");
    (text.into_bytes(), command)
}

/// Quotes a path as one word of the shell.
fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tree: &mut Tree, path: &str) {
        tree.put(path, File { content: vec![1], mode: 0o644, owner: 0, modified: 1, below: None });
    }

    #[test]
    fn the_same_seed_makes_the_same_changes() {
        let run = |seed| {
            let (mut random, mut tree, mut script) = (fastrand::Rng::with_seed(seed), Tree::default(), String::new());
            (0..50).for_each(|_| tree.change(&mut random, &mut script));
            (tree, script)
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn a_name_of_a_file_below_is_a_file_of_its_own_once_it_is_written_to() {
        let mut tree = Tree::default();
        file(&mut tree, "/walk/a");
        let node = tree.nodes["/walk/a"].clone();
        tree.nodes.insert("/walk/b".to_owned(), node);
        let mut booted = tree.booted();
        booted.own("/walk/a").unwrap().content.push(2);
        assert_eq!(booted.facts("/walk/a", &booted.nodes["/walk/a"]), booted.expected()["/walk/a"]);
        assert!(booted.expected()["/walk/b"].contains("2 names"), "{:?}", booted.expected());
        assert!(booted.expected()["/walk/a"].contains("1 names"), "{:?}", booted.expected());
        // There, names are those that can be seen.
        let b = booted.nodes.remove("/walk/b").unwrap();
        booted.nodes.insert("/etc/skel/b".to_owned(), b);
        assert!(booted.expected()["/etc/skel/b"].contains("1 names"), "{:?}", booted.expected());
        tree.own("/walk/a").unwrap().content.push(2);
        assert_eq!(tree.expected()["/walk/a"], tree.expected()["/walk/b"]);
    }
}
