//! Every combination of a directory, its identity file and its database.

use super::*;

fn place(inode: u64, device: u64, boot: &str) -> Place {
    Place { path: "/data".into(), inode, born: Some(1), device, boot: boot.to_owned() }
}

fn written(id: &str, place: Place) -> Written {
    Written { id: id.to_owned(), prefix: prefix_of(id), was: None, place }
}

fn facts(file: Option<Written>, database: Database) -> Facts {
    let leavings = Leavings { saved: 2, runs: 1, volumes: 0 };
    Facts { written: file, place: place(1, 1, "a"), database, has_log: false, leavings, runs: Vec::new() }
}

fn living_run(owner: &str) -> NotedRun {
    let run = format!("{}-1", "a".repeat(20)).parse().ok();
    NotedRun { run, owner: owner.to_owned(), is_alive: true }
}

const DATA: &str = "/data";

fn begin(facts: &Facts, stored: Option<&str>, asked: Asked) -> Result<Written, IdentityError> {
    allowed(Path::new(DATA), facts, asked)?;
    decide(Path::new(DATA), facts, stored, asked)
}

#[test]
fn data_without_a_database_is_refused_until_a_new_one_is_asked_for() {
    let new_store = Asked { new_store: true, ..Asked::default() };
    for database in [Database::Missing, Database::Empty] {
        let facts = facts(Some(written("own", place(1, 1, "a"))), database);
        let refused = begin(&facts, None, Asked::default()).unwrap_err();
        assert!(matches!(refused, IdentityError::NoStore { .. }), "{refused}");
        assert!(refused.to_string().contains("2 saved states, 1 run") && refused.to_string().contains("--new-store"));
        assert_eq!(begin(&facts, None, new_store).unwrap().id, "own");
        let with_log = Facts { has_log: true, ..facts };
        assert!(matches!(begin(&with_log, None, new_store), Err(IdentityError::LogAlone { .. })));
    }
    let nothing = Facts { leavings: Leavings::default(), ..facts(None, Database::Missing) };
    assert!(begin(&nothing, None, Asked::default()).unwrap().id.starts_with('d'));
}

#[test]
fn the_database_of_another_directory_is_refused() {
    let facts = facts(Some(written("own", place(1, 1, "a"))), Database::There);
    assert_eq!(begin(&facts, Some("own"), Asked::default()).unwrap().id, "own");
    for found in [Some("other"), None] {
        let refused = begin(&facts, found, Asked::default());
        assert!(matches!(refused, Err(IdentityError::ForeignStore { .. })), "{refused:?}");
    }
    let replaced = begin(&facts, Some("own"), Asked { new_store: true, ..Asked::default() });
    assert!(matches!(replaced, Err(IdentityError::StoreThere { .. })), "{replaced:?}");
}

#[test]
fn a_moved_or_remounted_directory_stays_itself_and_a_copy_becomes_another() {
    for (file, is_itself) in [
        (place(1, 1, "a"), true),
        (Place { path: "/elsewhere".into(), ..place(1, 1, "a") }, true),
        (place(1, 2, "before"), true),
        (place(1, 2, "a"), true),
        (place(2, 1, "a"), false),
        (Place { born: Some(2), ..place(1, 1, "a") }, false),
        (place(2, 1, "before"), false),
    ] {
        let facts = facts(Some(written("own", file.clone())), Database::There);
        let begun = begin(&facts, Some("own"), Asked::default()).unwrap();
        assert_eq!(begun.id == "own", is_itself, "{file:?}");
        assert_eq!(begun.was.as_deref(), (!is_itself).then_some("own"), "{file:?}");
        assert_eq!(begun.place, facts.place);
    }
}

#[test]
fn a_copy_whose_original_has_living_runs_is_refused_until_it_is_said_to_be_one() {
    for file in [place(2, 1, "a"), place(1, 2, "a")] {
        let mut facts = facts(Some(written("own", file)), Database::There);
        facts.runs.push(living_run("own"));
        let refused = begin(&facts, Some("own"), Asked::default());
        assert!(matches!(refused, Err(IdentityError::Copy { count: 1, .. })), "{refused:?}");
        let begun = begin(&facts, Some("own"), Asked { as_copy: true, ..Asked::default() }).unwrap();
        assert!(begun.id != "own" && begun.was.as_deref() == Some("own") && begun.prefix != prefix_of("own"));
    }
}

#[test]
fn a_death_between_the_file_and_the_database_is_made_up_for() {
    let file = Written { was: Some("before".to_owned()), ..written("after", place(1, 1, "a")) };
    let facts = facts(Some(file), Database::There);
    for stored in ["before", "after"] {
        let begun = begin(&facts, Some(stored), Asked::default()).unwrap();
        assert_eq!(begun.id, "after");
    }
}

#[test]
fn a_lost_file_is_made_again() {
    let mut facts = facts(None, Database::There);
    let restored = begin(&facts, Some("own"), Asked::default()).unwrap();
    assert!(restored.id != "own" && restored.was.as_deref() == Some("own"), "a database without its directory");
    facts.runs.push(living_run("own"));
    assert_eq!(begin(&facts, Some("own"), Asked::default()).unwrap().id, "own");
    assert_ne!(begin(&facts, None, Asked::default()).unwrap().id, "own");
}

#[tokio::test]
async fn a_directory_is_recognised_after_a_move_and_its_copy_is_not() {
    let place = tempfile::tempdir().unwrap();
    let (first, moved, copy) = (place.path().join("first"), place.path().join("moved"), place.path().join("copy"));
    std::fs::create_dir(&first).unwrap();
    let (made, store) = open(&first, Asked::default()).await.unwrap();
    store.close().await.unwrap();
    std::fs::rename(&first, &moved).unwrap();
    let (found, store) = open(&moved, Asked::default()).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(made, found);
    std::fs::create_dir(&copy).unwrap();
    for name in [FILE, DATABASE] {
        std::fs::copy(moved.join(name), copy.join(name)).unwrap();
    }
    let (copied, store) = open(&copy, Asked::default()).await.unwrap();
    assert_ne!(copied.id, made.id);
    assert_eq!(store.identity().await.unwrap().as_ref(), Some(&copied.id));
    assert_eq!(prefix(&copy), copied.prefix);
}
