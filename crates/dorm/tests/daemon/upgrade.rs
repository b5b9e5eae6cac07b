//! Data directories of releases: this build opens them, and finds everything in them.
//!
//! `cargo xtask release-data` has made them at the tags of the releases.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use crate::place::Place;

fn archives() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases");
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "gz")).collect()
}

/// Whether `new` has everything of `old` with the same value; objects may have more.
fn has(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            // A deadline moves with the wall clock (decision 0008), also that of an ended
            // operation.
            let is_same = |key: &str, new, old| key == "deadline" || has(new, old);
            old.iter().all(|(key, value)| new.get(key).is_some_and(|new| is_same(key, new, value)))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| has(new, old))
        }
        (Value::String(new), Value::String(old)) => new == old || are_one_time(new, old),
        _ => new == old,
    }
}

/// Returns an answer of a release with the properties that were renamed since, whose values mean
/// the same.
fn in_words_of_today(old: &Value) -> Value {
    match old {
        Value::Object(fields) => fields.iter().map(|(name, value)| renamed(name, value)).collect(),
        Value::Array(values) => values.iter().map(in_words_of_today).collect(),
        _ => old.clone(),
    }
}

fn renamed(name: &str, value: &Value) -> (String, Value) {
    match (name, value) {
        ("auto_resume", Value::Bool(resumes)) => ("wake".into(), json!(if *resumes { "traffic" } else { "never" })),
        _ => (name.to_owned(), in_words_of_today(value)),
    }
}

/// Whether two timestamps differ by no more than clocks of two boots do when one is converted to
/// the other: times of a sandbox follow the wall clock (decision 0008).
fn are_one_time(new: &str, old: &str) -> bool {
    let (Ok(new), Ok(old)) = (new.parse::<jiff::Timestamp>(), old.parse::<jiff::Timestamp>()) else { return false };
    new.duration_since(old).unsigned_abs() <= std::time::Duration::from_millis(10)
}

/// Whether this host can continue memory that was saved on the host of the release.
fn has_its_cpu(facts: &Value) -> bool {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let flags = cpu.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    let here: BTreeSet<_> = flags.split_whitespace().collect();
    facts["cpu_flags"].as_array().unwrap().iter().all(|flag| here.contains(flag.as_str().unwrap()))
}

async fn run(place: &Place, id: &str, script: &str) -> String {
    let (code, output) = place.daemon().exec(id, &["/bin/sh", "-c", script]).await.unwrap();
    assert_eq!(code, 0, "{script}: {output}");
    output
}

#[tokio::test]
async fn the_data_of_each_release_is_opened_with_everything_in_it() {
    let archives = archives();
    assert!(!archives.is_empty());
    for archive in archives {
        opens(&archive).await;
    }
}

async fn opens(archive: &Path) {
    let release = archive.display();
    let options = ["--keep-terminated", "forever", "--keep-events", "forever", "--allow-network", "127.0.0.0/8"];
    let place = Place::holding(&options, |directory| {
        let mut tar = Command::new("tar");
        tar.args([
            "--extract",
            "--gzip",
            "--numeric-owner",
            "--preserve-permissions",
            "--xattrs",
            "--xattrs-include=*",
            "--file",
        ])
        .arg(archive);
        assert!(tar.arg("--directory").arg(directory).status().unwrap().success(), "{release}");
    });
    let daemon = place.daemon();
    let facts = std::fs::read_to_string(place.directory().join("facts.json")).unwrap();
    let facts: Value = serde_json::from_str(&facts).unwrap();
    for (list, old) in facts["lists"].as_object().unwrap() {
        let new = daemon.get(list).await.unwrap();
        let old = &in_words_of_today(old);
        assert!(has(&new, old), "{release}: {list}: {new:#}\n\nat the release: {old:#}");
    }
    let old = facts["events"].as_array().unwrap();
    let events = daemon.get("/events?limit=1000").await.unwrap();
    let first = events["events"].as_array().unwrap().iter().take(old.len()).cloned().collect();
    assert!(has(&Value::Array(first), &facts["events"]), "{release}: {events:#}");
    let stored = daemon.request(Method::GET, "/volumes/data/files?path=kept").send().await.unwrap();
    assert_eq!(stored.text().await.unwrap(), "on a volume", "{release}");
    let with_key = reqwest::Client::builder().no_proxy().build().unwrap().get(format!("{}/v1/info", daemon.address()));
    let answer = with_key.bearer_auth(facts["key"].as_str().unwrap()).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{release}: the key permits nothing");
    let files = daemon.create(json!({ "snapshot": facts["files"] })).await.unwrap();
    assert_eq!(run(&place, &files, "cat /file").await, "kept\n", "{release}");
    continues(&place, &facts, &format!("{release}")).await;
    for stored in daemon.get("/verify").await.unwrap()["stored"].as_array().unwrap() {
        let verified = daemon.post("/verify", stored.clone()).await.unwrap();
        assert_eq!(verified["verdict"], "sound", "{release}: {verified:#}");
    }
    place.end(&["a webhook was not taken", "a copy", "the host was booted"]).await;
}

/// Continues the suspended sandbox and the memory snapshot, or uses their files on another CPU.
async fn continues(place: &Place, facts: &Value, release: &str) {
    let daemon = place.daemon();
    let (asleep, ask) = (facts["asleep"].as_str().unwrap(), facts["ask"].as_str().unwrap());
    if has_its_cpu(facts) {
        daemon.act(asleep, "resume").await.unwrap();
        assert_eq!(run(place, asleep, ask).await, "42\n", "{release}");
        assert_eq!(
            run(place, asleep, "cat /file /mnt/kept; echo $COLOUR $TOKEN").await,
            "kept\non a volumered hunter2\n"
        );
        let restored = daemon.create(json!({ "snapshot": facts["memory"] })).await.unwrap();
        assert_eq!(run(place, &restored, ask).await, "41\n", "{release}");
    } else {
        eprintln!("{release}: this host has another CPU: only the files of memory are compared");
        let path = format!("/snapshots/{}/files", facts["memory"].as_str().unwrap());
        let files = daemon.post(&path, json!({})).await.unwrap();
        let sandbox = daemon.create(json!({ "snapshot": files["id"] })).await.unwrap();
        assert_eq!(run(place, &sandbox, "cat /tmp/ready").await, "ready\n", "{release}");
    }
}
