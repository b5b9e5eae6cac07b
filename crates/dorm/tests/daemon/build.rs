//! Images that are built in real sandboxes.

use std::process::{Command, Output};

use dorm_testing::{Daemon, project, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{PATIENCE, Place};

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
async fn a_copy_has_the_owner_and_the_mode_that_it_names() {
    let place = Place::with_images(&["base"]);
    let daemon = place.daemon();
    let context = tempfile::tempdir().unwrap();
    let tree = context.path().join("tree/deep");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("file", tree.join("link")).unwrap();
    let dockerfile = |copy: &str| std::fs::write(context.path().join("Dockerfile"), format!("FROM base\n{copy}\n"));
    let path = context.path().to_str().unwrap();
    dockerfile(
        "COPY --chown=user:daemon --chmod=0640 tree /named/\nCOPY --chown=12:34 tree /numbered/\nUSER user\n\
                COPY tree /plain/",
    )
    .unwrap();
    built(daemon, &[path, "--tag", "made"]);
    let id = daemon.create(json!({ "image": "made" })).await.unwrap();
    let look = "cd /; for d in named numbered plain; do stat -c '%n %u:%G %a' $d/deep $d/deep/file $d/deep/link; done; \
                id -u user";
    let (_, seen) = daemon.exec(&id, &["sh", "-c", look]).await.unwrap();
    let lines: Vec<_> = seen.lines().collect();
    let user = lines[9];
    let group = daemon.exec(&id, &["sh", "-c", "getent group 34 | cut -d: -f1"]).await.unwrap().1;
    let mut wanted = Vec::new();
    for (place, owner, mode) in [
        ("named", format!("{user}:daemon"), "640"),
        ("numbered", format!("12:{}", group.trim()), "644"),
        ("plain", "0:root".to_owned(), "644"),
    ] {
        wanted.push(format!("{place}/deep {owner} 755"));
        wanted.push(format!("{place}/deep/file {owner} {mode}"));
        wanted.push(format!("{place}/deep/link {owner} 777"));
    }
    assert_eq!(lines[..9], wanted);
    dockerfile("COPY --chown=no-such-user tree /x/").unwrap();
    refused(daemon, &[path, "--tag", "other"], "no-such-user");
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

/// Returns the lines of a build's log.
async fn log(daemon: &Daemon, id: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let page = daemon.get(&format!("/builds/{id}/logs?offset={}", lines.len())).await.unwrap();
        let new = page["lines"].as_array().unwrap();
        if new.is_empty() {
            return lines;
        }
        for line in new {
            assert_eq!(line["offset"], json!(lines.len()), "{line}");
            lines.push(line["text"].as_str().unwrap().to_owned());
        }
    }
}

async fn wait_for_line(daemon: &Daemon, id: &str, text: &str, times: usize) {
    until(PATIENCE, text, || async { Ok(log(daemon, id).await.iter().filter(|line| *line == text).count() >= times) })
        .await
        .unwrap();
}

/// Returns the end of a build.
async fn end(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/builds/{id}?wait_secs=120")).await.unwrap()
}

async fn running(daemon: &Daemon) -> Vec<String> {
    let running = daemon.get("/sandboxes?state=running").await.unwrap();
    let ids = running["sandboxes"].as_array().unwrap().iter();
    ids.map(|sandbox| sandbox["id"].as_str().unwrap().to_owned()).collect()
}

const WAITS: &str = "echo two; until test -e /go; do sleep 0.1; done; cat /kept; echo through";

#[tokio::test]
async fn a_build_whose_client_dies_and_whose_daemon_is_killed_is_finished_with_its_whole_log() {
    let mut place = Place::with_images(&["base"]);
    let daemon = place.daemon();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dorm"));
    command.args(["image", "build", "-o", "json", "--data"]).arg(daemon.data());
    command.args(["--from", "base", "--tag", "made", "--run", "echo one; echo kept > /kept", "--run", WAITS]);
    let mut client = command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut id = String::new();
    until(PATIENCE, "the build is there", || async {
        let builds = daemon.get("/builds").await?;
        Ok(builds["builds"].as_array().is_some_and(|builds| !builds.is_empty()))
    })
    .await
    .unwrap();
    id.push_str(daemon.get("/builds").await.unwrap()["builds"][0]["id"].as_str().unwrap());
    wait_for_line(daemon, &id, "two", 1).await;
    client.kill().unwrap();
    client.wait().unwrap();
    let first = running(daemon).await;
    assert_eq!(first.len(), 1);
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    // The step that was interrupted runs again, in another sandbox; the one before it does not.
    wait_for_line(daemon, &id, "two", 2).await;
    let second = running(daemon).await;
    assert!(second.len() == 1 && second != first, "{second:?}");
    daemon.exec(&second[0], &["touch", "/go"]).await.unwrap();
    let build = end(daemon, &id).await;
    assert_eq!(build["state"], json!("succeeded"), "{build}");
    let lines = log(daemon, &id).await;
    for (text, times) in [("one", 1), ("two", 2), ("kept", 1), ("through", 1)] {
        assert_eq!(lines.iter().filter(|line| *line == text).count(), times, "{text}: {lines:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("interrupted")), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("succeeded: image "), "{lines:?}");
    assert_eq!(running(daemon).await, [""; 0]);
    let made = daemon.create(json!({ "image": "made" })).await.unwrap();
    assert_eq!(daemon.exec(&made, &["cat", "/kept"]).await.unwrap(), (0, "kept\n".to_owned()));
    place.end(&[]).await;
}

#[tokio::test]
async fn a_cancelled_build_leaves_nothing_and_a_daemon_that_a_step_starts_ends_with_it() {
    let place = Place::with_images(&["base"]);
    let daemon = place.daemon();
    let steps = json!([{ "run": "(setsid sleep 1000 >/dev/null 2>&1 &); echo one" }, { "run": WAITS }]);
    let asked = json!({ "from": "base", "steps": steps, "tag": "made" });
    let build = daemon.post("/builds", asked).await.unwrap();
    let id = build["id"].as_str().unwrap();
    wait_for_line(daemon, id, "two", 1).await;
    daemon.post(&format!("/builds/{id}/cancel"), json!(null)).await.unwrap();
    let build = end(daemon, id).await;
    assert_eq!((&build["state"], &build["steps"][0]["state"]), (&json!("cancelled"), &json!("done")), "{build}");
    assert_eq!(running(daemon).await, [""; 0]);
    let images = daemon.get("/images").await.unwrap()["images"].as_array().unwrap().len();
    assert_eq!(images, 1);
    place.end(&[]).await;
}

#[tokio::test]
async fn sandboxes_of_a_template_have_its_program_running_and_its_snapshot_goes_with_its_tag() {
    let place = Place::with_images(&["base"]);
    let daemon = place.daemon();
    let ready = "python3 -c 'import urllib.request as r; r.urlopen(\"http://127.0.0.1:8000\")'";
    let asked = json!({
        "from": "base",
        "steps": [{ "run": "echo content > /srv/file" }, { "workdir": "/srv" }],
        "start_command": "echo starting; exec python3 -m http.server 8000",
        "ready_command": ready,
        "template": { "name": "web", "env": { "A": "1" } },
    });
    let build = daemon.post("/builds", asked).await.unwrap();
    let id = build["id"].as_str().unwrap();
    let build = end(daemon, id).await;
    assert_eq!(build["state"], json!("succeeded"), "{build} {:?}", log(daemon, id).await);
    assert!(log(daemon, id).await.iter().any(|line| line == "starting"));
    let snapshot = build["snapshot"].as_str().unwrap();
    for name in ["one", "two"] {
        let id = daemon.create(json!({ "template": "web", "name": name, "env": { "B": "2" } })).await.unwrap();
        assert_eq!(daemon.visit(&id, 8000, "/file").await.unwrap(), "content\n");
        let said = daemon.exec(&id, &["sh", "-c", "echo $A$B"]).await.unwrap();
        assert_eq!(said, (0, "12\n".to_owned()));
    }
    let refused = daemon.request(Method::DELETE, &format!("/snapshots/{snapshot}")).send().await.unwrap();
    let refused = refused.text().await.unwrap();
    assert!(refused.contains("template web:latest"), "{refused}");
    assert!(daemon.create(json!({ "template": "web:v2" })).await.unwrap_err().to_string().contains("web:v2"));
    daemon.request(Method::DELETE, "/templates/web").send().await.unwrap().error_for_status().unwrap();
    until(PATIENCE, "the snapshot is deleted", || async {
        let found = daemon.request(Method::GET, &format!("/snapshots/{snapshot}")).send().await?;
        Ok(found.status() == 404)
    })
    .await
    .unwrap();
    place.end(&[]).await;
}
