use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dorm_guest_ids::GuestIds;
use dorm_lifecycle::SavedStateId;
use dorm_steps::pass;

use super::copy::Reading;
use super::draft::open_regular;
use super::tests::{facts, id};
use super::{Expected, MARKS, SavedState, SavedStates, WrittenFile};
use crate::error::StorageError;
use crate::steps::Steps;

const BYTES: usize = 5 << 20;
const FLIPPED: u64 = 3 << 20;

fn open(home: &Path) -> Arc<SavedStates> {
    Arc::new(SavedStates::open(home, GuestIds::DEFAULT, Steps(pass())).unwrap())
}

/// Makes a saved state with a large and a small file. Returns it with a descriptor of the large one
/// that was opened for writing before the commit.
fn make(states: &Arc<SavedStates>, id: &SavedStateId) -> (SavedState, File) {
    let draft = states.draft(id, 0).unwrap();
    fs::write(draft.directory().join("pages.img"), vec![42; BYTES]).unwrap();
    fs::write(draft.directory().join("checkpoint.img"), b"state").unwrap();
    let early = OpenOptions::new().write(true).open(draft.directory().join("pages.img")).unwrap();
    let file = |name: &str, bytes: usize| WrittenFile {
        name: name.into(),
        bytes: bytes as u64,
        shared_with: None,
        blake3: None,
    };
    let made = draft.commit_now(&facts(), &[file("pages.img", BYTES), file("checkpoint.img", 5)]).unwrap();
    (made, early)
}

fn pages(made: &SavedState) -> PathBuf {
    made.directory.join("pages.img")
}

fn writable(path: &Path) -> File {
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    OpenOptions::new().write(true).open(path).unwrap()
}

fn verify(states: &SavedStates, id: &SavedStateId) -> Result<SavedState, StorageError> {
    let facts = facts();
    states.verify(id, &Expected { engine: facts.engine, build: facts.build, cpu: facts.cpu }, &|_| Ok(true))
}

/// Whether the large file has a valid mark. On a file system that does not get marks, that is never
/// the case, and the tests show that everything is read.
fn is_marked(states: &SavedStates, made: &SavedState) -> bool {
    let file = open_regular(&pages(made)).unwrap().unwrap();
    let expected = made.files.iter().find(|file| file.name == Path::new("pages.img")).unwrap();
    states.marks.holds(&made.id, expected, &file)
}

fn can_mark(made: &SavedState) -> bool {
    super::marks::is_trusted(&File::open(pages(made)).unwrap())
}

#[test]
fn a_file_that_was_written_or_read_is_marked_for_this_boot_and_no_other() {
    let home = tempfile::tempdir().unwrap();
    let states = open(home.path());
    let (made, _) = make(&states, &id(1));
    assert_eq!(is_marked(&states, &made), can_mark(&made));
    drop(states);
    let states = open(home.path());
    assert_eq!(is_marked(&states, &made), can_mark(&made), "the next daemon knows it");
    drop(states);
    let log = home.path().join(MARKS);
    let known = fs::read_to_string(&log).unwrap();
    let other_boot = known.lines().skip(1).fold("other\n".to_owned(), |text, line| text + line + "\n");
    let damaged = known.replacen("\"bytes\":5", "\"bytes\":6", 1);
    for unusable in [&other_boot[..], &damaged, &known[..known.len() - 2], "", "\0\0\0"] {
        fs::write(&log, unusable).unwrap();
        let states = open(home.path());
        assert!(!is_marked(&states, &made), "{unusable}");
        verify(&states, &made.id).unwrap();
        assert_eq!(is_marked(&states, &made), can_mark(&made), "reading it made a new mark");
    }
    states_without_log(home.path(), &made);
}

fn states_without_log(home: &Path, made: &SavedState) {
    fs::remove_file(home.join(MARKS)).unwrap();
    // Nothing can be written there.
    fs::create_dir(home.join(MARKS)).unwrap();
    let states = open(home);
    verify(&states, &made.id).unwrap();
    assert_eq!(is_marked(&states, made), can_mark(made), "the log is not needed");
}

#[test]
fn a_write_makes_the_mark_void_however_it_is_done() {
    type Write = fn(&SavedState, &File);
    let rows: [(&str, Write); 7] = [
        ("through a descriptor from before", |_, early| early.write_all_at(&[1], FLIPPED).unwrap()),
        ("through another name", |made, _| {
            let other = made.directory.with_extension("other");
            fs::hard_link(pages(made), &other).unwrap();
            writable(&other).write_all_at(&[1], FLIPPED).unwrap();
            fs::remove_file(other).unwrap();
        }),
        ("with the old time of the last write", |made, early| {
            let modified = early.metadata().unwrap().modified().unwrap();
            early.write_all_at(&[1], FLIPPED).unwrap();
            File::open(pages(made)).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
        }),
        ("cut and grown again", |_, early| {
            early.set_len(FLIPPED).unwrap();
            early.set_len(BYTES as u64).unwrap();
        }),
        ("another file under its name", |made, _| {
            let (path, other) = (pages(made), made.directory.with_extension("other"));
            let times = fs::metadata(&path).unwrap().modified().unwrap();
            fs::copy(&path, &other).unwrap();
            writable(&other).write_all_at(&[1], FLIPPED).unwrap();
            File::open(&other).unwrap().set_times(FileTimes::new().set_modified(times)).unwrap();
            fs::rename(other, path).unwrap();
        }),
        ("in a copy of the directory", |made, _| {
            let (moved, copy) = (made.directory.with_extension("moved"), &made.directory);
            fs::rename(copy, &moved).unwrap();
            fs::create_dir(copy).unwrap();
            for name in ["pages.img", "checkpoint.img", "manifest.json"] {
                fs::copy(moved.join(name), copy.join(name)).unwrap();
            }
            writable(&pages(made)).write_all_at(&[1], FLIPPED).unwrap();
            fs::remove_dir_all(moved).unwrap();
        }),
        ("while the file was being marked", |made, early| {
            // The smallest distance in time that a test can have.
            File::open(pages(made)).unwrap().set_permissions(Permissions::from_mode(0o600)).unwrap();
            early.write_all_at(&[1], FLIPPED).unwrap();
        }),
    ];
    for (name, write) in rows {
        // Several times, because a write in the same tick of the clock is what could be missed.
        for round in 0..8 {
            let home = tempfile::tempdir().unwrap();
            let states = open(home.path());
            let (made, early) = make(&states, &id(1));
            write(&made, &early);
            let refused = verify(&states, &id(1)).unwrap_err();
            assert!(
                matches!(&refused, StorageError::Damaged { file, .. } if file == Path::new("pages.img")),
                "{name}, round {round}: {refused}"
            );
            drop(states);
            verify(&open(home.path()), &id(1)).unwrap_err();
        }
    }
}

#[test]
fn a_mark_saves_the_reading_and_damage_found_by_reading_makes_it_void() {
    let home = tempfile::tempdir().unwrap();
    let states = open(home.path());
    let (made, early) = make(&states, &id(1));
    if !can_mark(&made) {
        return;
    }
    let sound = fs::read(pages(&made)).unwrap();
    let copied = states.copy(&id(1), &id(2), Reading::Trusted).unwrap();
    early.write_all_at(&[1], FLIPPED).unwrap();
    // As if a bit had flipped below the page cache: the mark is of the file as it is now.
    states.marks.forge(&made.id, &made.files[1], &early);
    states.marks.forge(&copied.saved_state.id, &made.files[1], &early);
    assert!(is_marked(&states, &made), "{:?}", made.files);
    verify(&states, &id(1)).unwrap();
    for _ in 0..2 {
        assert!(
            matches!(states.check_content(&made), Err(StorageError::Damaged { .. })),
            "reading takes no notice of it"
        );
        assert!(matches!(verify(&states, &id(1)), Err(StorageError::Damaged { .. })));
    }
    if copied.shares_data {
        assert!(!is_marked(&states, &copied.saved_state), "it is the same file");
    }
    drop(states);
    let states = open(home.path());
    assert!(matches!(verify(&states, &id(1)), Err(StorageError::Damaged { .. })), "the next daemon does not trust it");
    early.write_all_at(&sound[FLIPPED as usize..=FLIPPED as usize], FLIPPED).unwrap();
    verify(&states, &id(1)).unwrap();
    assert!(is_marked(&states, &made));
}

#[test]
fn a_change_of_the_mode_costs_one_reading() {
    let home = tempfile::tempdir().unwrap();
    let states = open(home.path());
    let (made, _) = make(&states, &id(1));
    fs::set_permissions(pages(&made), Permissions::from_mode(0o640)).unwrap();
    assert!(!is_marked(&states, &made));
    verify(&states, &id(1)).unwrap();
    assert_eq!(is_marked(&states, &made), can_mark(&made));
}

#[test]
fn names_that_are_made_and_removed_here_do_not_cost_a_reading() {
    let home = tempfile::tempdir().unwrap();
    let states = open(home.path());
    let (made, early) = make(&states, &id(1));
    let can_mark = can_mark(&made);
    let copied = states.copy(&id(1), &id(2), Reading::Checked).unwrap();
    let copy = copied.saved_state;
    assert_eq!(is_marked(&states, &made), can_mark);
    // A clone is another file, which nothing has read.
    assert_eq!(is_marked(&states, &copy), can_mark && copied.shares_data);
    states.remove(&id(1)).unwrap();
    assert_eq!(is_marked(&states, &copy), can_mark && copied.shares_data);
    drop(states);
    let states = open(home.path());
    assert_eq!(is_marked(&states, &copy), can_mark && copied.shares_data);
    verify(&states, &id(2)).unwrap();
    if copied.shares_data {
        early.write_all_at(&[1], FLIPPED).unwrap();
        verify(&states, &id(2)).unwrap_err();
        let refused = states.copy(&id(2), &id(3), Reading::Checked).unwrap_err();
        assert!(matches!(refused, StorageError::Damaged { .. }), "{refused}");
    }
}

#[test]
fn a_write_while_a_name_is_made_is_not_taken_for_the_name() {
    let home = tempfile::tempdir().unwrap();
    let states = open(home.path());
    let (made, early) = make(&states, &id(1));
    let other = home.path().join("other");
    let file = File::open(pages(&made)).unwrap();
    let linked = states.marks.through(&file, None, || {
        early.write_all_at(&[1], FLIPPED)?;
        fs::hard_link(pages(&made), &other)
    });
    linked.unwrap();
    assert!(!is_marked(&states, &made));
    verify(&states, &id(1)).unwrap_err();
}

#[test]
fn files_of_a_complete_memory_saved_state_are_read_only() {
    let home = tempfile::tempdir().unwrap();
    let states = open(home.path());
    let (made, _) = make(&states, &id(1));
    let copy = states.copy(&id(1), &id(2), Reading::Trusted).unwrap().saved_state;
    for saved_state in [made, copy] {
        for file in &saved_state.files {
            let mode = fs::metadata(saved_state.directory.join(&file.name)).unwrap().mode();
            assert_eq!(mode & 0o777, 0o400, "{}", file.name.display());
        }
    }
}

#[test]
fn the_log_does_not_grow_without_bound() {
    let home = tempfile::tempdir().unwrap();
    let states = open(home.path());
    let (made, early) = make(&states, &id(1));
    for _ in 0..10_000 {
        states.marks.forge(&made.id, &made.files[1], &early);
    }
    let lines = fs::read_to_string(home.path().join(MARKS)).unwrap().lines().count();
    assert!((1..5_000).contains(&lines), "{lines}");
}
