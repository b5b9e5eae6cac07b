//! Images that are built in real sandboxes.

use std::process::{Command, Output};

use dorm_testing::{Daemon, project};
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::Place;

/// Runs `dorm image build` for a daemon.
fn build(daemon: &Daemon, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
    command.args(["image", "build", "-o", "json", "--data"]).arg(daemon.data());
    command.args(arguments).output().unwrap()
}

fn built(daemon: &Daemon, arguments: &[&str]) -> Value {
    let output = build(daemon, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(daemon: &Daemon, arguments: &[&str], word: &str) {
    let output = build(daemon, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(word), "{said}");
}

/// For each step that leaves files: whether its files were cached.
fn cached(built: &Value) -> Vec<bool> {
    let steps = built["steps"].as_array().unwrap().iter();
    steps.filter(|step| !step["key"].is_null()).map(|step| step["cached"].as_bool().unwrap()).collect()
}

#[tokio::test]
async fn a_project_is_built_step_by_step_and_continues_from_what_changed() {
    let place = Place::with_images(&["tools"]);
    let daemon = place.daemon();
    let context = tempfile::tempdir().unwrap();
    project::write(context.path(), "one\n").unwrap();
    let path = context.path().to_str().unwrap();
    let first = built(daemon, &[path, "--tag", "project"]);
    assert_eq!(cached(&first), [false; 6]);
    let again = built(daemon, &[path, "--tag", "project"]);
    assert_eq!((cached(&again), &again["image"]["digest"]), (vec![true; 6], &first["image"]["digest"]));
    std::fs::write(context.path().join("settings"), "two\n").unwrap();
    let changed = built(daemon, &[path, "--tag", "project"]);
    assert_eq!(cached(&changed), [true, true, true, true, false, false]);
    let id = daemon.create(json!({ "image": "project" })).await.unwrap();
    let said = daemon.exec(&id, &["sh", "-c", "pwd; greet; node app/web/index.js"]).await.unwrap();
    assert_eq!(said, (0, "/srv\ntwo\nleft of x\n".to_owned()));
    // The image does not depend on the snapshots it was built from.
    for snapshot in daemon.get("/snapshots").await.unwrap()["snapshots"].as_array().unwrap().iter().rev() {
        let path = format!("/snapshots/{}", snapshot["id"].as_str().unwrap());
        let answer = daemon.request(Method::DELETE, &path).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
    let id = daemon.create(json!({ "image": "project" })).await.unwrap();
    assert_eq!(daemon.exec(&id, &["greet"]).await.unwrap(), (0, "two\n".to_owned()));
    place.end(&[]).await;
}

#[tokio::test]
async fn what_a_step_removes_is_gone_and_what_it_owns_stays_its_own() {
    let place = Place::with_images(&["base"]);
    let daemon = place.daemon();
    let mut arguments = vec!["--from", "base", "--workdir", "/data"];
    let one = "mkdir deep && echo x > deep/a && ln deep/a b && chown user b && chmod 4711 b";
    let two = "rm -rf /usr/share/perl /etc/skel && mkdir /etc/skel && mkfifo pipe && ln -s nowhere link";
    arguments.extend(["--run", one, "--run", two, "--tag", "made"]);
    built(daemon, &arguments);
    let id = daemon.create(json!({ "image": "made" })).await.unwrap();
    let look = "ls /usr/share/perl 2>&1; ls -A /etc/skel; stat -c '%n %U %a %h' b deep/a; readlink link; test -p pipe && echo pipe";
    let gone = "ls: cannot access '/usr/share/perl': No such file or directory\n";
    let seen = daemon.exec(&id, &["sh", "-c", look]).await.unwrap();
    assert!(seen.1.starts_with(gone), "{}", seen.1);
    let rest: Vec<_> = seen.1[gone.len()..].lines().collect();
    assert!(rest[0].starts_with("b user 4711") && rest[1].starts_with("deep/a user 4711"), "{rest:?}");
    assert_eq!(rest[2..], ["nowhere", "pipe"]);
    place.end(&[]).await;
}

#[tokio::test]
async fn a_step_that_fails_hangs_or_fills_its_disk_ends_the_build_and_leaves_nothing() {
    let place = Place::with_images(&["base"]);
    let daemon = place.daemon();
    let begin = ["--from", "base", "--tag", "made", "--run", "echo kept > /kept"];
    let with = |more: &[&'static str]| [&begin[..], more].concat();
    refused(daemon, &with(&["--run", "echo out of luck; exit 3"]), "the command exited with code 3");
    refused(daemon, &with(&["--run", "sleep 1000", "--step-timeout", "2s"]), "exceeded the step timeout of");
    let filling = ["--from", "base", "--tag", "made", "--disk", "64M", "--run", "head -c 100M /dev/urandom > /big"];
    refused(daemon, &filling, "the command exited with code 1");
    refused(daemon, &with(&["--ready-cmd", "true"]), "also set the command that the image starts");
    refused(daemon, &with(&["--run", "kill -9 $$"]), "signal 9");
    // Its program cannot be started as a user who does not exist: the image is not kept.
    let nobody = ["--user", "no-such-user", "--cmd", "sleep 1000", "--ready-cmd", "true"];
    refused(daemon, &with(&nobody), "no-such-user");
    let living = daemon.get("/sandboxes?state=running").await.unwrap();
    assert_eq!(living["sandboxes"], json!([]));
    let tags = |images: Value| images["images"].as_array().unwrap().iter().map(|image| image["tags"].clone()).collect();
    let tags: Vec<Value> = tags(daemon.get("/images").await.unwrap());
    assert_eq!(tags, [json!(["base"])]);
    let snapshots = daemon.get("/snapshots").await.unwrap()["snapshots"].as_array().unwrap().len();
    assert_eq!(snapshots, 1, "the step that worked is kept, once");
    assert_eq!(cached(&built(daemon, &with(&["--run", "cat /kept"]))), [true, false]);
    place.end(&[]).await;
}

#[tokio::test]
async fn an_image_is_named_when_its_program_has_slept_and_woken() {
    let place = Place::with_images(&["base"]);
    let daemon = place.daemon();
    let ready = "python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:8000\")'";
    let options = ["--from", "base", "--cmd", "exec python3 -m http.server 8000", "--ready-cmd", ready, "--tag", "web"];
    built(daemon, &options);
    // The create of a sandbox with a program responds when the program is ready.
    let id = daemon.create(json!({ "image": "web", "start": true })).await.unwrap();
    assert!(daemon.visit(&id, 8000, "/").await.is_ok());
    let events = daemon.get("/sandboxes?state=terminated").await.unwrap();
    let trial =
        events["sandboxes"].as_array().unwrap().iter().find(|sandbox| !sandbox["labels"]["dorm.trial"].is_null());
    assert_eq!(trial.unwrap()["generation"], json!(2), "it was evicted and resumed");
    place.end(&[]).await;
}
