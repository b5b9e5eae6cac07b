//! Environments with real sandboxes: repositories from servers that serve well and badly, many
//! callers from several processes, and secrets that are found nowhere.

use std::path::Path;
use std::process::{Command, Stdio};

use dorm_testing::{Daemon, GitServer, until};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{PATIENCE, Place};

const TOKEN: &str = "ghs-Rk4vW81mQz-for-the-clone-only";
const SECRET: &str = "npm-Lx92pTq7Yd-for-the-setup-only";
/// The SHA-256 hash of the secret, which a setup writes into a file.
const SUM: &str = "b486a58aaef3c8a91e1eb0a5567d239b7c4c718ae99a960f20a4b38fada0dcf8";

/// A server of `app.git`, with a branch and a tag.
struct Repository {
    server: GitServer,
    directory: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = "set -e; git init -q -b main work; cd work; git config user.email a@b.c; git config user.name a
            echo one > file; head -c 300000 /dev/urandom > large; git add .; git commit -qm one; git tag v1
            echo two > file; git commit -qam two; git checkout -qb feature/x; echo three > file; git commit -qam three
            git checkout -q main; cd ..; git clone -q --bare work app.git";
        let made = Command::new("sh").args(["-c", script]).current_dir(directory.path()).status().unwrap();
        assert!(made.success());
        Self { server: GitServer::new(directory.path(), TOKEN).unwrap(), directory }
    }

    fn url(&self, mode: &str) -> String {
        self.server.url(mode, "app.git")
    }

    fn commit(&self, reference: &str) -> String {
        let work = self.directory.path().join("work");
        let asked = Command::new("git").arg("-C").arg(work).args(["rev-parse", reference]).output().unwrap();
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    }
}

async fn ensure(daemon: &Daemon, asked: Value) -> Value {
    daemon.post("/ensure", asked).await.unwrap()
}

/// Returns the problem of a request that fails.
async fn failed(daemon: &Daemon, asked: Value) -> Value {
    let answer = daemon.try_ask(Method::POST, "/ensure", Some(asked)).await.unwrap();
    assert!(answer.status >= 400, "{}", answer.body);
    answer.body
}

fn id(ensured: &Value) -> &str {
    ensured["sandbox"]["id"].as_str().unwrap()
}

async fn said(daemon: &Daemon, ensured: &Value, line: &str) -> String {
    let (code, said) = daemon.exec(id(ensured), &["sh", "-c", line]).await.unwrap();
    assert_eq!(code, 0, "{line}: {said}");
    said.trim().to_owned()
}

async fn remove_all(daemon: &Daemon) {
    let all = daemon.get("/environments?limit=1000").await.unwrap();
    for one in all["environments"].as_array().unwrap() {
        let path = format!("/environments/{}", one["id"].as_str().unwrap());
        daemon.ask(Method::DELETE, &path, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_repository_is_cloned_at_a_branch_a_tag_or_a_commit() {
    let git = Repository::new();
    let place = Place::new();
    let daemon = place.daemon();
    let asked = |key: &str, reference: Option<&str>, full: bool| {
        json!({ "key": key, "image": "base", "source": { "git": {
            "url": git.url("open"), "ref": reference, "full_history": full,
        } } })
    };
    for (key, reference, content, of) in [
        ("default", None, "two", "main"),
        ("branch", Some("feature/x"), "three", "feature/x"),
        ("tag", Some("v1"), "one", "v1"),
        ("commit", Some(git.commit("v1").as_str()), "one", "v1"),
    ] {
        let made = ensure(daemon, asked(key, reference, false)).await;
        assert_eq!(made["environment"]["commit"], json!(git.commit(of)), "{key}");
        assert_eq!(said(daemon, &made, "cat /workspace/file").await, content);
        assert_eq!(said(daemon, &made, "cd /workspace && git rev-list --count HEAD").await, "1", "{key}");
    }
    let full = ensure(daemon, asked("full", None, true)).await;
    assert_eq!(said(daemon, &full, "cd /workspace && git rev-list --count HEAD").await, "2");
    // The sandbox is a working copy: the remote is set.
    assert_eq!(said(daemon, &full, "cd /workspace && git remote get-url origin").await, git.url("open"));
    remove_all(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn servers_that_refuse_hang_or_serve_half_are_named() {
    let git = Repository::new();
    let place = Place::new();
    let daemon = place.daemon();
    let source = |mode: &str| json!({ "git": { "url": git.url(mode) } });
    for (mode, code, part) in [
        ("refuse", "failed", "503"),
        ("half", "failed", "code 128"),
        ("hang", "timed_out", "time limit of 3 s"),
        ("private", "failed", "Username"),
    ] {
        let limit = if mode == "hang" { 3 } else { 120 };
        let asked = json!({
            "key": mode, "image": "base", "source": source(mode), "step_timeout_secs": limit, "setup": ["true"],
        });
        let problem = failed(daemon, asked).await;
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(problem["code"], json!(code), "{mode}: {problem}");
        assert!(detail.contains("step 1 (clone ") && detail.contains(part), "{mode}: {detail}");
        let environment = daemon.get(&format!("/environments/{mode}")).await.unwrap();
        assert_eq!(environment["attempt"]["failure"]["step"], json!(0), "{environment}");
        assert_eq!(environment["state"], json!("idle"));
    }
    let nowhere =
        json!({ "key": "a", "image": "base", "source": { "git": { "url": git.url("open"), "ref": "none" } } });
    let problem = failed(daemon, nowhere).await;
    assert!(problem["detail"].as_str().unwrap().contains("none not found"), "{problem}");
    let living = daemon.get("/sandboxes?state=running,suspended").await.unwrap();
    assert_eq!(living["sandboxes"], json!([]));
    remove_all(daemon).await;
    place.end(&[]).await;
}

/// Returns which of these texts are in files below a directory.
async fn find<'a>(below: &Path, texts: &[&'a str]) -> Vec<&'a str> {
    let mut command = Command::new("sh");
    // Files are sparse: tar leaves the holes out, and grep would read them.
    command.args(["-c", "tar -cSf - -C \"$0\" . | grep -aoF \"$1\""]).arg(below).arg(texts.join("\n"));
    // It takes long enough for the daemon to close connections meanwhile.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    texts.iter().filter(|text| found.lines().any(|line| line == **text)).copied().collect()
}

#[tokio::test]
async fn a_token_and_a_secret_reach_the_setup_and_are_found_nowhere() {
    let git = Repository::new();
    let place = Place::new();
    let daemon = place.daemon();
    daemon.ask(Method::PUT, "/secrets/NPM", Some(json!({ "value": SECRET }))).await.unwrap();
    daemon.ask(Method::PUT, "/secrets/GIT", Some(json!({ "value": TOKEN }))).await.unwrap();
    let kinds = [("memory", json!({ "token": TOKEN })), ("filesystem", json!({ "token_secret": "GIT" }))];
    for (kind, token) in kinds {
        let mut repository = json!({ "url": git.url("private") });
        repository.as_object_mut().unwrap().extend(token.as_object().unwrap().clone());
        // The output of a command is kept in memory, too.
        let prints = if kind == "memory" { "true" } else { "echo $NPM_TOKEN" };
        let asked = json!({
            "key": kind, "image": "base", "source": { "git": repository }, "secrets": { "NPM_TOKEN": "NPM" },
            "setup": ["test ${#NPM_TOKEN} = 33", "printf %s \"$NPM_TOKEN\" | sha256sum > /root/sum", prints],
            "lifecycle": { "snapshot_kind": kind },
        });
        let made = ensure(daemon, asked.clone()).await;
        assert!(git.server.has_seen_token());
        // The secret is there for every process, the token for none.
        assert_eq!(
            said(daemon, &made, "printf %s \"$NPM_TOKEN\" | sha256sum | diff - /root/sum && echo same").await,
            "same"
        );
        assert_eq!(said(daemon, &made, "env | grep -c DORM_GIT || true").await, "0");
        assert_eq!(said(daemon, &made, "cd /workspace && git config --list | grep -c ghs || true").await, "0");
        let text = made.to_string();
        assert!(!text.contains(SECRET) && !text.contains(TOKEN), "{text}");
        let log = daemon.get(&format!("/environments/{kind}/logs")).await.unwrap().to_string();
        assert!(
            log.contains("***") == (kind == "filesystem") && !log.contains(SECRET) && !log.contains(TOKEN),
            "{log}"
        );
    }
    let events = daemon.get("/events?limit=1000").await.unwrap().to_string();
    assert!(!events.contains(SECRET) && !events.contains(TOKEN));
    // Records, logs, the snapshots after the setups, and the daemon's own log. The hash shows
    // that content of guests is found.
    assert_eq!(find(daemon.data(), &[TOKEN, SECRET, SUM]).await, [SUM]);
    assert!(!daemon.log().contains(SECRET) && !daemon.log().contains(TOKEN));
    remove_all(daemon).await;
    place.end(&[]).await;
}

/// Fifty callers in a process of their own.
const CALLERS: &str = "import json,os,sys,threading,urllib.request\n\
    def ask(answers):\n\
    \x20   body = json.dumps(json.loads(sys.argv[1])).encode()\n\
    \x20   request = urllib.request.Request(os.environ['SERVER'] + '/v1/ensure', data=body, method='POST')\n\
    \x20   request.add_header('Authorization', 'Bearer ' + os.environ['KEY'])\n\
    \x20   request.add_header('Content-Type', 'application/json')\n\
    \x20   answers.append(json.load(urllib.request.urlopen(request, timeout=300)))\n\
    answers = []\n\
    threads = [threading.Thread(target=ask, args=(answers,)) for _ in range(50)]\n\
    for thread in threads: thread.start()\n\
    for thread in threads: thread.join()\n\
    print(json.dumps([[one['sandbox']['id'], one['by'], one['joined']] for one in answers]))\n";

#[tokio::test]
async fn a_hundred_callers_from_two_processes_get_one_sandbox_and_one_setup() {
    let place = Place::new();
    let daemon = place.daemon();
    let asked = json!({ "key": "one", "image": "base", "setup": ["sleep 2; echo x >> /root/counter"] });
    let callers = || {
        Command::new("python3")
            .args(["-c", CALLERS, &asked.to_string()])
            .env("SERVER", daemon.address())
            .env("KEY", daemon.key())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes = [callers(), callers()];
    let mut answers: Vec<(String, String, bool)> = Vec::new();
    for process in processes {
        let output = tokio::task::spawn_blocking(move || process.wait_with_output().unwrap()).await.unwrap();
        assert!(output.status.success());
        answers.extend(serde_json::from_slice::<Vec<(String, String, bool)>>(&output.stdout).unwrap());
    }
    assert_eq!(answers.len(), 100);
    assert!(answers.iter().all(|(id, ..)| *id == answers[0].0), "{answers:?}");
    let created = answers.iter().filter(|(_, by, joined)| by == "created" && !joined);
    assert_eq!(created.count(), 1, "{answers:?}");
    let made = ensure(daemon, asked).await;
    assert_eq!(said(daemon, &made, "cat /root/counter").await, "x");
    let all = daemon.get("/sandboxes?limit=1000").await.unwrap();
    assert_eq!(all["sandboxes"].as_array().unwrap().len(), 2, "that of the setup, and the one that was handed out");
    remove_all(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn twenty_threads_with_one_definition_share_one_setup() {
    let place = Place::new();
    let daemon = place.daemon();
    let asked = |thread: usize| {
        json!({
            "thread": { "thread": format!("t{thread}"), "definition": "agent" }, "image": "base",
            "resources": { "memory_bytes": 128 << 20 }, "setup": ["sleep 2; echo x >> /root/counter"],
        })
    };
    let all = join_all((0..20).map(|thread| ensure(daemon, asked(thread)))).await;
    let by = |wanted: &str| all.iter().filter(|one| one["by"] == json!(wanted)).count();
    assert_eq!((by("created"), by("restored")), (1, 19));
    for one in &all {
        assert_eq!(said(daemon, one, "cat /root/counter").await, "x");
    }
    assert_eq!(daemon.get("/snapshots").await.unwrap()["snapshots"].as_array().unwrap().len(), 1);
    remove_all(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_started_server_is_in_the_snapshot_or_is_started_again() {
    let place = Place::new();
    let daemon = place.daemon();
    for kind in ["memory", "filesystem"] {
        let asked = json!({
            "key": kind, "image": "base", "setup": ["echo hello > page"],
            "start_command": "exec python3 -m http.server 8000",
            "ready_command": "curl -fs http://localhost:8000/page",
            "lifecycle": { "snapshot_kind": kind },
        });
        let made = ensure(daemon, asked.clone()).await;
        assert_eq!(daemon.visit(id(&made), 8000, "/page").await.unwrap().trim(), "hello");
        daemon.act(id(&made), "terminate").await.unwrap();
        let restored = ensure(daemon, asked).await;
        assert_eq!(restored["by"], json!("restored"));
        assert_eq!(daemon.visit(id(&restored), 8000, "/page").await.unwrap().trim(), "hello");
        let lost = restored["lost"].to_string();
        assert_eq!(lost.contains("processes and memory"), kind == "filesystem", "{lost}");
    }
    remove_all(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_setup_that_fills_the_disk_or_forks_a_daemon_is_bounded() {
    let place = Place::new();
    let daemon = place.daemon();
    let full = json!({
        "key": "full", "image": "base", "resources": { "disk_bytes": 64 << 20 },
        "setup": ["head -c 200000000 /dev/zero > /root/large"],
    });
    let problem = failed(daemon, full).await;
    assert!(problem["detail"].as_str().unwrap().contains("No space left"), "{problem}");
    // A daemon that keeps the output open does not keep the step from ending.
    let forks = json!({
        "key": "forks", "image": "base", "setup": ["sleep 100000 & echo started", "true"], "step_timeout_secs": 20,
    });
    let made = ensure(daemon, forks).await;
    assert_eq!(made["by"], json!("created"), "{made}");
    assert_eq!(said(daemon, &made, "pgrep -c sleep").await, "1", "it is in the memory of the snapshot");
    remove_all(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_daemon_that_is_killed_in_a_setup_continues_it() {
    let mut place = Place::new();
    let asked = json!({
        "key": "one", "image": "base", "setup": ["echo x >> /root/counter; sleep 4; echo done", "echo y >> /root/counter"],
    });
    let first = {
        let daemon = place.daemon();
        let request = daemon.request(Method::POST, "/ensure").json(&asked);
        let asking = tokio::spawn(async move { request.send().await.map(drop) });
        let is_running = || async {
            let environment = daemon.get("/environments/one").await;
            Ok(environment.is_ok_and(|one| one["attempt"]["steps"][0]["state"] == json!("running")))
        };
        until(PATIENCE, "the setup runs", is_running).await.unwrap();
        asking
    };
    place.daemon_mut().kill().unwrap();
    let _ = first.await;
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    let made = ensure(daemon, asked).await;
    assert_eq!((&made["by"], &made["joined"]), (&json!("created"), &json!(true)));
    assert_eq!(said(daemon, &made, "cat /root/counter").await, "x\ny");
    remove_all(daemon).await;
    place.end(&["interrupted"]).await;
}
