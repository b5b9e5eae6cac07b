//! The files that a guest has changed are read out of its memory image, and equal the guest's own
//! listing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dorm_agent_client::{Agent, GuestPath, GuestString, ProcessSpec};
use dorm_engine::{Content, Engine, Entry, EntryKind, FileSink, LeftOut, RunSpec, chain};
use dorm_engine_gvisor::read_files;
use dorm_lifecycle::{Resources, RunId};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use crate::host::{Place, agent_of, base_image, shell, wait_for};

const GUEST: &str = include_str!("files_guest.py");
const ID_BASE: u32 = dorm_guest_ids::GuestIds::DEFAULT.base();
/// Of longer files only a part of the middle is compared.
const BIG: u64 = 64 << 20;
const MIDDLE: u64 = 500 << 20;
const MIDDLE_BYTES: usize = 1 << 20;
/// Directories that the guest does not list; mounts there are not compared.
const NOT_LOOKED_AT: [&[u8]; 5] = [b"proc", b"sys", b"dev", b"dorm-agent", b".dorm-volumes"];

type Tree = BTreeMap<Vec<u8>, Node>;

/// One file, as one side knows it; unknown properties are not compared.
#[derive(Clone, PartialEq, Debug, Default)]
struct Node {
    kind: String,
    mode: u32,
    user: u32,
    group: u32,
    modified: (i64, u32),
    bytes: Option<u64>,
    target: Option<Vec<u8>>,
    digest: Option<String>,
    attributes: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    inode: Option<u64>,
}

/// Collects the entries with digests of their contents.
#[derive(Default)]
struct Taken {
    entries: Vec<(Entry, String, u64)>,
}

impl FileSink for Taken {
    fn take(&mut self, entry: &Entry, content: &mut dyn Content) -> io::Result<()> {
        let mut end = 0;
        let mut delivered = 0;
        let (start, length) = match entry.kind {
            EntryKind::File { bytes } if bytes > BIG => (MIDDLE, MIDDLE_BYTES),
            EntryKind::File { bytes } => (0, usize::try_from(bytes).unwrap()),
            _ => (0, 0),
        };
        let mut whole = vec![0_u8; length];
        while let Some((at, piece)) = content.next()? {
            assert!(at >= end && !piece.is_empty() && piece.len() <= 1 << 20, "{}", entry.path.escape_ascii());
            end = at + piece.len() as u64;
            delivered += piece.len() as u64;
            let from = usize::try_from(at.checked_sub(start).unwrap()).unwrap();
            whole[from..from + piece.len()].copy_from_slice(piece);
        }
        let digest = if length == 0 && end == 0 { hex(&Sha256::digest([])) } else { hex(&Sha256::digest(&whole)) };
        self.entries.push((entry.clone(), digest, delivered));
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

fn read(image: &Path) -> (Taken, LeftOut) {
    let mut taken = Taken::default();
    let left = read_files(image, &mut taken).unwrap_or_else(|error| panic!("{}", chain(&*error)));
    check_order(&taken);
    (taken, left)
}

/// Checks that a directory comes before its entries, a file before its other names, and no path
/// twice.
fn check_order(taken: &Taken) {
    let mut kinds: BTreeMap<&[u8], &EntryKind> = BTreeMap::new();
    for (entry, ..) in &taken.entries {
        let path = entry.path.as_slice();
        if let Some(at) = path.iter().rposition(|&byte| byte == b'/') {
            assert!(matches!(kinds.get(&path[..at]), Some(EntryKind::Directory { .. })), "{}", path.escape_ascii());
        }
        if let EntryKind::HardLink(first) = &entry.kind {
            let kind = kinds.get(first.as_slice());
            assert!(matches!(kind, Some(EntryKind::File { .. } | EntryKind::Symlink(_) | EntryKind::Fifo)));
        }
        assert!(kinds.insert(path, &entry.kind).is_none(), "{} comes twice", path.escape_ascii());
        let is_overlay = |name: &Vec<u8>| name.starts_with(b"trusted.overlay.");
        assert!(!entry.attributes.keys().any(is_overlay), "{}", path.escape_ascii());
    }
}

/// The tree of the image's root file system on the host.
fn tree_of(rootfs: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut pending = vec![rootfs.to_owned()];
    while let Some(path) = pending.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let kind = match facts.mode() >> 12 {
            0o04 => "directory",
            0o10 => "file",
            0o12 => "symlink",
            other => panic!("{}: {other:o}", path.display()),
        };
        let node = Node {
            kind: kind.to_owned(),
            mode: facts.mode() & 0o7777,
            user: facts.uid() - ID_BASE,
            group: facts.gid() - ID_BASE,
            modified: (facts.mtime(), u32::try_from(facts.mtime_nsec()).unwrap()),
            bytes: (kind == "file").then_some(facts.len()),
            target: (kind == "symlink").then(|| fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()),
            ..Node::default()
        };
        tree.insert(path.strip_prefix(rootfs).unwrap().as_os_str().as_bytes().to_vec(), node);
        if kind == "directory" {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    tree
}

fn remove_below(tree: &mut Tree, path: &[u8]) {
    let below = [path, b"/"].concat();
    tree.retain(|other, _| !other.starts_with(&below) && (!path.is_empty() || other.is_empty()));
}

/// Applies the changes to `tree`. Removing takes a single pass, since it searches everything.
fn apply(tree: &mut Tree, taken: &Taken) {
    let mut inode = 0;
    for (entry, digest, _) in &taken.entries {
        let path = &entry.path;
        let old = tree.get(path).map(|node| node.kind == "directory");
        let keeps = matches!(entry.kind, EntryKind::Directory { replaces: false });
        if old == Some(true) && !keeps {
            remove_below(tree, path);
        }
        tree.remove(path);
        inode += 1;
        let mut node = Node {
            mode: entry.mode,
            user: entry.user,
            group: entry.group,
            modified: entry.modified,
            attributes: Some(entry.attributes.clone()),
            inode: Some(inode),
            ..Node::default()
        };
        match &entry.kind {
            EntryKind::Removed => continue,
            EntryKind::Directory { .. } => node.kind = "directory".to_owned(),
            EntryKind::File { bytes } => {
                node.kind = "file".to_owned();
                node.bytes = Some(*bytes);
                node.digest = Some(digest.clone());
            }
            EntryKind::Symlink(target) => {
                node.kind = "symlink".to_owned();
                node.target = Some(target.clone());
                node.attributes = None;
            }
            EntryKind::HardLink(first) => node = tree[first].clone(),
            EntryKind::Fifo => {
                node.kind = "fifo".to_owned();
                node.attributes = None;
            }
        }
        tree.insert(path.clone(), node);
    }
}

/// The content of the guest's file `name`, in a directory that is not read out.
async fn text(agent: &Agent, name: &str) -> Vec<u8> {
    let path = GuestPath::new(format!("/dev/shm/{name}")).unwrap();
    let (_, mut stream) = agent.read_file(&path, 0, None).await.unwrap();
    let mut text = Vec::new();
    while let Some(chunk) = stream.next().await {
        text.extend_from_slice(&chunk.unwrap());
    }
    text
}

/// The guest's own listing.
async fn told(agent: &Agent, step: &str) -> Tree {
    let text = text(agent, step).await;
    let told: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&text).unwrap();
    let number = |value: &serde_json::Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let node = |facts: &serde_json::Value| Node {
        kind: facts["kind"].as_str().unwrap().to_owned(),
        mode: number(&facts["mode"]),
        user: number(&facts["user"]),
        group: number(&facts["group"]),
        modified: (facts["modified"][0].as_i64().unwrap(), number(&facts["modified"][1])),
        bytes: facts["bytes"].as_u64(),
        target: facts["target"].as_str().map(bytes_of),
        digest: facts["digest"].as_str().map(str::to_owned),
        attributes: facts["attributes"]
            .as_object()
            .map(|map| map.iter().map(|(name, value)| (bytes_of(name), bytes_of(value.as_str().unwrap()))).collect()),
        inode: facts["inode"].as_u64(),
    };
    told.iter().map(|(path, facts)| (bytes_of(path), node(facts))).collect()
}

/// Compares the files that were read with the guest's own listing.
fn compare(rootfs: &Path, taken: &Taken, left: LeftOut, mut told: Tree) {
    let mut tree = tree_of(rootfs);
    apply(&mut tree, taken);
    for tree in [&mut tree, &mut told] {
        tree.retain(|path, _| !NOT_LOOKED_AT.iter().any(|top| path.split(|&byte| byte == b'/').next() == Some(*top)));
    }
    let count = |kind| told.values().filter(|node| node.kind == kind).count() as u64;
    assert_eq!(left, LeftOut { sockets: count("socket"), devices: count("device") });
    told.retain(|_, node| node.kind != "socket" && node.kind != "device");
    // The guest sees the mount there, and not the directory.
    assert_eq!(tree[b"root/mounted".as_slice()].kind, "directory");
    tree.remove(b"root/mounted".as_slice());
    told.remove(b"root/mounted".as_slice());
    let mut wrong = Vec::new();
    let mut inodes = BTreeMap::new();
    let paths: std::collections::BTreeSet<_> = tree.keys().chain(told.keys()).collect();
    for path in paths {
        let (ours, theirs) = (tree.get(path), told.get(path));
        let same = match (ours, theirs) {
            (Some(ours), Some(theirs)) => {
                // Neither side reads files of the image that are unchanged.
                let theirs = Node {
                    digest: theirs.digest.clone().filter(|_| ours.digest.is_some()),
                    attributes: theirs.attributes.clone().filter(|_| ours.attributes.is_some()),
                    inode: None,
                    ..theirs.clone()
                };
                theirs == Node { inode: None, ..ours.clone() }
            }
            _ => false,
        };
        if !same {
            wrong.push(format!("{}: read {ours:?}, told {theirs:?}", path.escape_ascii()));
        }
        if let (Some(Node { inode: Some(ours), kind, .. }), Some(Node { inode: Some(theirs), .. })) = (ours, theirs)
            && kind != "directory"
            && inodes.insert((path.starts_with(b"tmp/"), *theirs), *ours).is_some_and(|before| before != *ours)
        {
            wrong.push(format!("{} is not the hard link that it should be", path.escape_ascii()));
        }
    }
    let many = wrong.len();
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{many} differ:\n{}", wrong.join("\n"));
}

async fn begin(agent: &Agent, step: &str) {
    let arguments = ["/usr/bin/python3", "-c", GUEST, step].map(|word| GuestString::new(word).unwrap());
    let process = agent.start(&ProcessSpec::new(arguments.into())).await.unwrap().process;
    let path = GuestPath::new(format!("/dev/shm/{step}")).unwrap();
    wait_for("the guest's changes", || async {
        let ended = agent.processes().await.unwrap().into_iter().find(|status| status.process == process);
        if ended.is_none_or(|status| status.exit.is_some()) {
            panic!("the script inside has failed: {}", String::from_utf8_lossy(&text(agent, "said").await));
        }
        agent.stat(&path).await.is_ok()
    })
    .await;
}

/// A run of the base image, which has Python.
pub(crate) fn spec(place: &Place) -> Option<RunSpec> {
    let Some((image, rootfs)) = base_image() else {
        dorm_skip::skip("there is no base image: run 'cargo xtask setup'");
        return None;
    };
    let resources = Resources { disk_bytes: 512 << 20, memory_bytes: 512 << 20, ..Resources::default() };
    Some(RunSpec { image, rootfs, resources, ..place.spec() })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_in_an_image_are_what_the_guest_says() {
    let Some(place) = Place::new() else { return };
    let Some(mut spec) = spec(&place) else { return };
    let engine = place.open(0).await;
    engine.start(&spec).await.unwrap();
    for step in ["first", "second"] {
        let agent = agent_of(&engine, &spec.run).await;
        begin(&agent, step).await;
        let told = told(&agent, step).await;
        let said = String::from_utf8(text(&agent, "said").await).unwrap();
        let mounts = said.contains("mounted 0") && said.contains("namespace b'made");
        assert!(mounts || step == "second", "nothing was mounted inside: {said}");
        agent.quiesce().await.unwrap();
        let without_memory = place.image_directory(&format!("{step}-files"));
        engine.save_files(&spec.run, &without_memory).await.unwrap();
        let image = place.image_directory(step);
        engine.save(&spec.run, &image, &[]).await.unwrap();
        engine.stop(&spec.run).await.unwrap();
        let (taken, left) = read(&image);
        let same = read(&without_memory);
        assert_eq!(same.1, left);
        for (one, other) in same.0.entries.iter().zip(&taken.entries) {
            assert_eq!((&one.0, &one.1), (&other.0, &other.1), "what is saved without memory is another file");
            assert!(one.2 <= other.2, "{} has more content without memory", one.0.path.escape_ascii());
        }
        assert_eq!(same.0.entries.len(), taken.entries.len());
        compare(&spec.rootfs, &taken, left, told);
        let sparse = taken.entries.iter().find(|(entry, ..)| entry.path == b"root/sparse").unwrap();
        assert!(sparse.2 < 100_000, "{} bytes of a sparse file", sparse.2);
        let names = |entry: &Entry| entry.path.ends_with(b"secret") || entry.path.ends_with(b"other");
        assert!(!taken.entries.iter().any(|(entry, ..)| names(entry)));
        spec.run = RunId { generation: spec.run.generation + 1, ..spec.run.clone() };
        if step == "first" {
            engine.restore(&spec, &image).await.unwrap();
        }
    }
    assert_eq!(place.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_has_changed_nothing_leaves_next_to_nothing() {
    let Some(place) = Place::new() else { return };
    let Some(spec) = spec(&place) else { return };
    let engine = place.open(0).await;
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    agent.quiesce().await.unwrap();
    let image = place.image_directory("one");
    engine.save(&spec.run, &image, &[]).await.unwrap();
    engine.stop(&spec.run).await.unwrap();
    let (taken, left) = read(&image);
    assert_eq!(left, LeftOut::default());
    let directories = |entry: &Entry| matches!(entry.kind, EntryKind::Directory { replaces: false });
    let others: Vec<_> = taken.entries.iter().filter(|(entry, ..)| !directories(entry)).collect();
    assert!(others.is_empty() && taken.entries.len() < 10, "{:?}", taken.entries);
}

/// A generator of the same numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_never_more_than_an_error() {
    let Some(place) = Place::new() else { return };
    let engine = place.open(0).await;
    let spec = place.spec();
    engine.start(&spec).await.unwrap();
    let agent = agent_of(&engine, &spec.run).await;
    let script = "cd /root; n=0; while test $n -lt 50; do echo $n > file-$n; n=$((n+1)); done; echo > '/tmp/x'";
    assert_eq!(shell(&agent, script).await, 0);
    agent.quiesce().await.unwrap();
    let without_memory = place.image_directory("files");
    let saved = engine.save_files(&spec.run, &without_memory).await.unwrap();
    let image = place.image_directory("one");
    engine.save(&spec.run, &image, &[]).await.unwrap();
    engine.stop(&spec.run).await.unwrap();
    if saved.files.iter().any(|file| file.name.as_os_str() == "files.img") {
        damage_a_list(&without_memory);
    }
    let (taken, _) = read(&image);
    let files = taken.entries.iter().filter(|(entry, ..)| entry.path.starts_with(b"root/file-"));
    assert_eq!(files.count(), 50);
    // An image with a file in /tmp keeps /tmp in the root file system.
    assert!(taken.entries.iter().any(|(entry, ..)| entry.path == b"tmp/x"));
    let mut numbers = Numbers(17);
    for name in ["checkpoint.img", "pages_meta.img", "pages.img"] {
        let path = image.join(name);
        let whole = fs::read(&path).unwrap();
        for length in [0, 1, 15, 100, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(read_files(&image, &mut Taken::default()).is_err(), "{name} cut to {length} bytes");
        }
        let frames = if name == "checkpoint.img" { contents_of_frames(&whole) } else { Vec::new() };
        let mut refused = 0;
        for _ in 0..if name == "pages.img" { 5 } else { 200 } {
            let mut damaged = whole.clone();
            // Anywhere, or in the content of a frame; one bit or a whole byte.
            let at = match frames.get(numbers.below(frames.len().max(1) * 2)) {
                Some(at) => *at,
                None => numbers.below(whole.len()),
            };
            damaged[at] ^= if numbers.below(2) == 0 { 0xff } else { 1 << numbers.below(8) };
            fs::write(&path, &damaged).unwrap();
            // Only the writer knows the meaning of a byte: most damages must be noticed, and the
            // others must do no harm.
            refused += usize::from(read_files(&image, &mut Discarded).is_err());
        }
        eprintln!("{name}: {refused} refused");
        assert!(name == "pages.img" || refused > 50, "{name}: {refused} refused");
        fs::write(&path, &whole).unwrap();
    }
    fs::remove_file(image.join("pages.img")).unwrap();
    let error = read_files(&image, &mut Taken::default()).unwrap_err();
    assert!(chain(&*error).contains("pages.img"), "{}", chain(&*error));
}

/// Cuts the files of an image that has only files, and changes its list.
fn damage_a_list(image: &Path) {
    let mut numbers = Numbers(23);
    for name in ["files.img", "content.img"] {
        let path = image.join(name);
        let whole = fs::read(&path).unwrap();
        for length in [0, 1, 15, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(read_files(image, &mut Discarded).is_err(), "{name} cut to {length} bytes");
        }
        for _ in 0..500 {
            let mut damaged = whole.clone();
            damaged[numbers.below(whole.len())] ^= if numbers.below(2) == 0 { 0xff } else { 1 << numbers.below(8) };
            fs::write(&path, &damaged).unwrap();
            // Names and modes have no other copy. A damage must do no harm.
            let _ = read_files(image, &mut Discarded);
        }
        fs::write(&path, &whole).unwrap();
    }
}

/// The offsets in `checkpoint.img` of the first bytes of the contents of its frames.
fn contents_of_frames(whole: &[u8]) -> Vec<usize> {
    let number =
        |at: usize, bytes: usize| whole[at..at + bytes].iter().fold(0, |all, byte| all << 8 | usize::from(*byte));
    let mut at = 16 + number(8, 8) + 32;
    let mut found = Vec::new();
    while at < whole.len() {
        found.push(at + 4);
        at += 4 + number(at, 4);
    }
    found
}

/// Reads all contents and keeps nothing.
struct Discarded;

impl FileSink for Discarded {
    fn take(&mut self, _: &Entry, content: &mut dyn Content) -> io::Result<()> {
        while content.next()?.is_some() {}
        Ok(())
    }
}
