//! Damaged and lost records of real sandboxes: readable records are served, and the others are
//! rebuilt.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::place::{Counter, Place, images};

fn dorm(arguments: &[&str], data: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
    command.args(arguments).arg("--data").arg(data);
    if arguments[0] == "repair" {
        command.arg("--images").arg(images());
    }
    command.output().unwrap()
}

fn works(arguments: &[&str], data: &Path) -> String {
    let output = dorm(arguments, data);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

async fn sql(data: &Path, statement: String) {
    let mut connection = SqliteConnectOptions::new().filename(data.join("dormouse.db")).connect().await.unwrap();
    let done = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    assert_eq!(done.rows_affected(), 1);
    connection.close().await.unwrap();
}

/// The error of a daemon that does not start.
fn refusal(place: &mut Place) -> String {
    place.daemon_mut().start_again().err().map(|error| format!("{error:#}")).unwrap_or_default()
}

#[tokio::test]
async fn damaged_records_are_left_out_and_rebuilt_and_a_lost_database_comes_back_from_its_backup() {
    let mut place = Place::new();
    let data = place.daemon().data().to_owned();
    let mut awake = Counter::create(place.daemon(), json!({ "name": "awake", "image": "base" })).await;
    let mut asleep = Counter::create(place.daemon(), json!({ "name": "asleep", "image": "base" })).await;
    let snapshot = place.daemon().checkpoint(&awake.id, "filesystem").await.unwrap();
    let snapshot = snapshot["id"].as_str().unwrap().to_owned();
    place.daemon().act("asleep", "suspend").await.unwrap();
    place.daemon().act("asleep", "evict").await.unwrap();

    // The backup is written while the daemon runs; then the database is lost.
    let backup = data.parent().unwrap().join("backup");
    works(&["backup", backup.to_str().unwrap()], &data);
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    std::fs::remove_file(data.join("dormouse.db")).unwrap();
    works(&["restore", backup.to_str().unwrap()], &data);
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    assert_eq!(daemon.describe("awake").await.unwrap()["state"], "running");
    awake.is_whole(daemon).await;
    daemon.act("asleep", "resume").await.unwrap();
    asleep.is_whole(daemon).await;
    assert_eq!(daemon.get(&format!("/snapshots/{snapshot}")).await.unwrap()["status"], "completed");

    // With two damaged rows, their sandbox keeps running, and all others are served.
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let id = &awake.id;
    sql(&data, format!("UPDATE sandboxes SET document = substr(document, 2) WHERE id = '{id}'")).await;
    sql(&data, format!("UPDATE snapshots SET document = '' WHERE id = '{snapshot}'")).await;
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    asleep.is_whole(daemon).await;
    let (_, listed) = (0, daemon.get("/quarantine").await.unwrap());
    assert_eq!(listed["records"].as_array().unwrap().len(), 2, "{listed}");
    let answer = daemon.try_ask(reqwest::Method::GET, "/sandboxes/awake", None).await.unwrap();
    assert_eq!((answer.status, &answer.body["code"]), (500, &json!("unreadable")), "{answer:?}");
    let text = answer.body.to_string();
    assert!(text.contains(id.as_str()) && text.contains("dorm repair"), "{text}");
    let doctor: Value = serde_json::from_slice(&dorm(&["doctor", "-o", "json"], &data).stdout).unwrap();
    let told =
        doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "records").unwrap().to_string();
    assert!(told.contains(id.as_str()) && told.contains(&snapshot), "{told}");

    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let report: Value = serde_json::from_str(&works(&["repair", "-o", "json"], &data)).unwrap();
    assert_eq!((&report["mended"], report["findings"].as_array().unwrap().len()), (&json!(true), 2), "{report}");
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    assert_eq!(daemon.describe("awake").await.unwrap()["state"], "running");
    awake.is_whole(daemon).await;
    assert_eq!(daemon.get(&format!("/snapshots/{snapshot}")).await.unwrap()["status"], "completed");
    place.end(&["cannot be read"]).await;
}

#[tokio::test]
async fn a_damaged_small_file_is_made_up_for_or_refused_by_its_name() {
    let mut place = Place::new();
    let data = place.daemon().data().to_owned();
    let mut web = Counter::create(place.daemon(), json!({ "name": "web", "image": "base" })).await;
    let found = |directory: &str, end: &str| -> Vec<PathBuf> {
        let mut open = vec![data.join(directory)];
        let mut files = Vec::new();
        while let Some(path) = open.pop() {
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type().unwrap().is_dir() && path.file_name().unwrap() != "disk" {
                    true => open.push(path),
                    false if path.to_string_lossy().ends_with(end) => files.push(path),
                    false => {}
                }
            }
        }
        files
    };
    // For files that describe runs: the sandbox keeps running, whatever happens to one of them.
    for (directory, end) in [("gvisor/containers", "note.json"), ("network", ".json"), ("records", ".json")] {
        for content in ["", "{\"", "\u{0}\u{0}\u{0}"] {
            assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
            let files = found(directory, end);
            assert!(!files.is_empty(), "{directory}");
            for file in files {
                std::fs::write(file, content).unwrap();
            }
            place.daemon_mut().start_again().unwrap();
            assert_eq!(place.daemon().describe("web").await.unwrap()["state"], "running", "{directory} {content:?}");
            web.is_whole(place.daemon()).await;
        }
    }
    // For a file that cannot be rebuilt: the start fails with its name and the next step, and the
    // restored file works again.
    assert_eq!(place.daemon_mut().stop().unwrap(), Some(0));
    let key = data.join("key");
    let whole = std::fs::read(&key).unwrap();
    std::fs::write(&key, "").unwrap();
    let said = refusal(&mut place);
    assert!(said.contains(key.to_str().unwrap()) && said.contains("delete it"), "{said}");
    std::fs::write(&key, whole).unwrap();
    let database = data.join("dormouse.db");
    let whole = std::fs::read(&database).unwrap();
    for (content, at) in [(&whole[..5000], "cut off"), (&whole[1..], "shifted")] {
        std::fs::write(&database, content).unwrap();
        let said = refusal(&mut place);
        assert!(said.contains("dorm repair"), "{at}: {said}");
        assert_eq!(std::fs::read(&database).unwrap().len(), content.len(), "{at}: it was changed");
    }
    // The database is rebuilt from record files, and the sandbox has kept running.
    works(&["repair"], &data);
    place.daemon_mut().start_again().unwrap();
    assert_eq!(place.daemon().describe("web").await.unwrap()["state"], "running");
    web.is_whole(place.daemon()).await;
    place.end(&["cannot be read", "not this one", "cannot read a note", "cannot read the note"]).await;
}
