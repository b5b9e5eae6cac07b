//! Compromised workers: whatever they send, the import fails or the image is one that its archive
//! could describe, and nothing is left over.

use dorm_worker::{Fields, Program, Sender};

use super::layers::{Layout, layer_names};
use super::*;
use crate::images::documents::Packing;
use crate::images::node::{GuestPath, Kind, Node};
use crate::images::reader::wire::{ANSWER, CONTENT, DONE, ENTRY, PLACE, put_node};

/// Runs no code of ours, so it needs no user of its own.
const USER: u32 = 1;

fn node(kind: Kind) -> Node {
    let path = GuestPath::parse(b"etc/shadow").unwrap();
    Node { path, kind, mode: 0o644, user: 0, group: 0, modified: 0, capability: None }
}

/// The messages of a worker.
struct Said(Sender<Vec<u8>>);

impl Said {
    fn new() -> Self {
        Self(Sender::new(Vec::new()))
    }

    fn frame(mut self, kind: u8, content: &[u8]) -> Self {
        self.0.send(kind, content).unwrap();
        self
    }

    fn entry(self, node: &Node) -> Self {
        let mut fields = Fields::default();
        put_node(&mut fields, "./etc/shadow", node);
        self.frame(ENTRY, fields.as_bytes())
    }

    /// Adds an entry with an invalid path.
    fn path(self, path: &[u8]) -> Self {
        let mut fields = Fields::default();
        fields.put_bytes(b"name");
        fields.put_bytes(path);
        for number in [1, 0, 0, 0o644, 0, 0, 0, 0] {
            fields.put(number);
        }
        self.frame(ENTRY, fields.as_bytes())
    }
}

/// Returns a pool whose workers send `said` when they read entries, and then execute `then`.
fn lied_to(home: &TempDir, said: Said, then: &str) -> Pool {
    let file = home.path().join("said");
    fs::write(&file, said.0.into_inner().unwrap()).unwrap();
    let index = home.path().join("index");
    let mut no = Sender::new(Vec::new());
    no.send(ANSWER, &[0]).and_then(|()| no.send(DONE, b"")).unwrap();
    fs::write(&index, no.into_inner().unwrap()).unwrap();
    let (file, index) = (file.display(), index.display());
    let then = if then.is_empty() { ":" } else { then };
    let script = format!(r#"case "$1" in untar) cat {file}; {then};; *) cat {index};; esac"#);
    let program = Program::new(Path::new("/bin/sh"), &["-c", &script, "worker"], USER);
    let pool = Pool::open(&home.path().join("data"), &home.path().join("images")).unwrap();
    pool.read_by(program)
}

fn text(error: &PoolError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("{error}: {source}")
}

#[tokio::test]
async fn a_worker_that_lies_or_dies_fails_its_import_and_leaves_nothing() {
    let file = || node(Kind::File(8));
    let cases = [
        ("leads out", Said::new().path(b"../../etc/shadow"), "", "invalid message"),
        ("leads out from the root", Said::new().entry(&node(Kind::Fifo)).path(b"a/../../../b"), "", "invalid message"),
        ("says nothing", Said::new(), "", "ended early"),
        ("fails", Said::new(), "echo why >&2; exit 3", "exit status: 3 (\"why\")"),
        ("is killed", Said::new().entry(&node(Kind::Directory)), "kill -9 $$", "signal: 9"),
        ("is killed in a file", Said::new().entry(&file()).frame(CONTENT, b"1234"), "kill -9 $$", "signal: 9"),
        (
            "has a longer file",
            Said::new().entry(&file()).frame(CONTENT, b"123456789"),
            "",
            "content of the current entry",
        ),
        (
            "has a shorter file",
            Said::new().entry(&file()).frame(CONTENT, b"1").frame(DONE, b""),
            "",
            "content of the current entry",
        ),
        ("has content of nothing", Said::new().frame(CONTENT, b"1"), "", "its type is unexpected"),
        ("knows another message", Said::new().frame(77, b"1"), "", "its type is unknown"),
        ("answers what is not asked", Said::new().frame(ANSWER, &[1]), "", "its type is unexpected"),
        ("begins a frame", Said::new(), "printf '\\377\\377\\377\\377\\001'", "longer than the maximum message length"),
        ("has too much", Said::new().entry(&node(Kind::File(1 << 50))), "", "larger than 64 GiB"),
        ("links out", Said::new().entry(&node(Kind::Symlink(vec![b'x'; 4096]))), "", "invalid message"),
        ("owns too much", Said::new().entry(&Node { user: 70_000, ..node(Kind::Fifo) }), "", "IDs 0 to 65535"),
        ("has nothing", Said::new().frame(DONE, b""), "", "it is empty"),
    ];
    for (name, said, then, expected) in cases {
        let home = tempfile::tempdir().unwrap();
        let pool = lied_to(&home, said, then);
        let error = import(&pool, &write(&home, &archive(&sample()))).await.unwrap_err();
        assert!(text(&error).contains(expected), "{name}: {}", text(&error));
        assert_eq!(left(&home), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn a_worker_cannot_pass_files_off_as_those_of_another_layer() {
    for (said, then) in [
        // It reads its layer and reports other content.
        (Said::new().entry(&node(Kind::File(1))).frame(CONTENT, b"x").frame(DONE, b""), ""),
        (Said::new().frame(DONE, b""), "exec cat >/dev/null"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let pool = lied_to(&home, said, then);
        // A blob that does not match its layer: the worker's messages do not matter.
        let mut layout = Layout::new(&home).layer(Packing::Plain, &full(1 << 20));
        layout.diff_ids = vec![super::layers::sum(&archive(&sample()))];
        layout.write();
        let error = import(&pool, &layout.path).await.unwrap_err();
        assert!(!text(&error).is_empty());
        assert_eq!((left(&home), layer_names(&home)), (Vec::new(), Vec::new()), "{}", text(&error));
    }
}

fn full(bytes: usize) -> Vec<u8> {
    archive(&[file("full", &"x".repeat(bytes))])
}

#[tokio::test]
async fn a_worker_cannot_place_a_file_outside_of_its_archive() {
    let home = tempfile::tempdir().unwrap();
    let mut fields = Fields::default();
    fields.put_bytes(b"oci-layout");
    fields.put(u64::MAX - 1);
    fields.put(u64::MAX);
    let mut index = Sender::new(Vec::new());
    index.send(ANSWER, &[1]).and_then(|()| index.send(PLACE, fields.as_bytes())).unwrap();
    let pool = lied_to(&home, Said::new(), "");
    fs::write(home.path().join("index"), index.into_inner().unwrap()).unwrap();
    let error = import(&pool, &write(&home, &archive(&sample()))).await.unwrap_err();
    assert!(text(&error).contains("not the position of a file"), "{}", text(&error));
}
