//! Volumes of real sandboxes: their contents outlive every sandbox, and their leases are always
//! known.

use dorm_testing::{Daemon, until};
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{Counter, PATIENCE, Place};

async fn volume(daemon: &Daemon, name: &str, asked: Value) -> Value {
    let mut whole = json!({ "name": name, "size_bytes": 64 << 20 });
    whole.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
    daemon.post("/volumes", whole).await.unwrap()
}

async fn sh(daemon: &Daemon, id: &str, line: &str) -> (i64, String) {
    daemon.exec(id, &["sh", "-c", line]).await.unwrap()
}

async fn works(daemon: &Daemon, id: &str, line: &str) -> String {
    let (code, said) = sh(daemon, id, line).await;
    assert_eq!(code, 0, "{line}: {said}");
    said.trim().to_owned()
}

/// The message of a refused request.
async fn refused(daemon: &Daemon, method: Method, path: &str, body: Option<Value>) -> String {
    let answer = daemon.try_ask(method, path, body).await.unwrap();
    assert!(answer.status >= 400, "{path}: {}", answer.body);
    answer.body["detail"].as_str().unwrap().to_owned()
}

fn with(name: &str, volumes: Value) -> Value {
    json!({ "name": name, "image": "base", "volumes": volumes })
}

async fn health(daemon: &Daemon, name: &str) -> Value {
    daemon.get(&format!("/volumes/{name}")).await.unwrap()["health"].clone()
}

#[tokio::test]
async fn what_is_on_a_volume_outlives_its_sandboxes_and_is_removed_only_when_nobody_wants_it() {
    let place = Place::new();
    let daemon = place.daemon();
    volume(daemon, "data", json!({})).await;
    let one = daemon.create(with("one", json!([{ "volume": "data", "path": "/data" }]))).await.unwrap();
    works(daemon, &one, "ls -A /data | wc -l | grep -qx 0 && mkdir /data/sub && echo hello > /data/sub/file").await;
    assert_eq!(health(daemon, "data").await, "mounted");
    let why = refused(daemon, Method::DELETE, "/volumes/data", None).await;
    assert!(why.contains("one (running)"), "{why}");
    daemon.act(&one, "terminate").await.unwrap();
    let two = [json!({ "volume": "data", "path": "/srv/part", "subpath": "sub" })];
    let two = daemon.create(with("two", json!(two))).await.unwrap();
    assert_eq!(works(daemon, &two, "cat /srv/part/file; stat -c %u /srv/part/file").await, "hello\n0");
    daemon.act(&two, "suspend").await.unwrap();
    let why = refused(daemon, Method::DELETE, "/volumes/data", None).await;
    assert!(why.contains("two (suspended)"), "{why}");
    daemon.act(&two, "terminate").await.unwrap();
    daemon.ask(Method::DELETE, "/volumes/data", None).await.unwrap();
    assert_eq!(std::fs::read_dir(daemon.data().join("volumes")).unwrap().count(), 0);
    place.end(&[]).await;
}

#[tokio::test]
async fn a_second_writer_is_refused_by_name_and_a_reader_cannot_write() {
    let place = Place::new();
    let daemon = place.daemon();
    volume(daemon, "data", json!({})).await;
    volume(daemon, "shared", json!({ "writers": "many" })).await;
    let both = json!([{ "volume": "data", "path": "/data" }, { "volume": "shared", "path": "/shared" }]);
    let one = daemon.create(with("one", both.clone())).await.unwrap();
    works(daemon, &one, "echo 1 > /data/a; echo 1 > /shared/a").await;
    let why = refused(daemon, Method::POST, "/sandboxes", Some(with("two", both))).await;
    assert!(why.contains("'data'") && why.contains(&format!("one ({one})")), "{why}");
    let reading =
        json!([{ "volume": "data", "path": "/data", "read_only": true }, { "volume": "shared", "path": "/s" }]);
    let two = daemon.create(with("two", reading)).await.unwrap();
    assert_eq!(works(daemon, &two, "cat /data/a; echo 2 > /s/b; cat /s/a").await, "1\n1");
    for line in
        ["echo 2 > /data/b", "rm /data/a", "echo 2 > /.dorm-volumes/0/b", "mount -o remount,rw /data && touch /data/x"]
    {
        let (code, said) = sh(daemon, &two, line).await;
        assert_ne!(code, 0, "{line}: {said}");
    }
    assert_eq!(works(daemon, &one, "cat /shared/b; ls /data").await, "2\na");
    // A suspend releases the lease, and a resume acquires it again.
    daemon.act(&one, "suspend").await.unwrap();
    let three = daemon.create(with("three", json!([{ "volume": "data", "path": "/data" }]))).await.unwrap();
    works(daemon, &three, "echo 3 > /data/c").await;
    let why = refused(daemon, Method::POST, &format!("/sandboxes/{one}/resume"), Some(json!({}))).await;
    assert!(why.contains(&format!("three ({three})")), "{why}");
    assert_eq!(daemon.describe(&one).await.unwrap()["state"], "suspended");
    daemon.act(&three, "terminate").await.unwrap();
    daemon.act(&one, "resume").await.unwrap();
    assert_eq!(works(daemon, &one, "cat /data/a /data/c").await, "1\n3");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_volume_is_there_again_after_parked_and_evicted_sleep_with_what_was_open_on_it() {
    let place = Place::new();
    let daemon = place.daemon();
    volume(daemon, "data", json!({})).await;
    let asked = with("web", json!([{ "volume": "data", "path": "/data" }]));
    let mut counter = Counter::create(daemon, asked).await;
    let id = counter.id.clone();
    let writer = "exec 7>>/data/log; cd /data; while :; do echo x >&7; sleep 0.05; done";
    let process = json!({ "argv": ["sh", "-c", writer] });
    daemon.post(&format!("/sandboxes/{id}/processes"), process).await.unwrap();
    for evicted in [false, true] {
        daemon.act(&id, "suspend").await.unwrap();
        if evicted {
            daemon.act(&id, "evict").await.unwrap();
        }
        daemon.act(&id, "resume").await.unwrap();
        counter.is_whole(daemon).await;
        let grows = "a=$(wc -c < /data/log); sleep 0.5; b=$(wc -c < /data/log); test $b -gt $a && ls /data";
        assert_eq!(works(daemon, &id, grows).await, "log");
    }
    // Another sandbox adds to the volume while this one is suspended: no sleep image contains data
    // of a volume.
    daemon.act(&id, "suspend").await.unwrap();
    daemon.act(&id, "evict").await.unwrap();
    let other = daemon.create(with("other", json!([{ "volume": "data", "path": "/mnt/data" }]))).await.unwrap();
    works(daemon, &other, "echo new > /mnt/data/new").await;
    daemon.act(&other, "terminate").await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert_eq!(works(daemon, &id, "cat /data/new").await, "new");
    counter.is_whole(daemon).await;
    place.end(&[]).await;
}

#[tokio::test]
async fn a_full_volume_is_an_error_inside_and_nothing_more() {
    let place = Place::new();
    let daemon = place.daemon();
    volume(daemon, "small", json!({ "size_bytes": 32 << 20 })).await;
    let id = daemon.create(with("web", json!([{ "volume": "small", "path": "/data" }]))).await.unwrap();
    let (code, said) = sh(daemon, &id, "dd if=/dev/zero of=/data/big bs=1M count=64").await;
    assert!(code != 0 && said.contains("No space left on device"), "{said}");
    assert_eq!(
        works(daemon, &id, "echo alive; rm /data/big; echo fits > /data/file; cat /data/file").await,
        "alive\nfits"
    );
    place.end(&[]).await;
}

#[tokio::test]
async fn volumes_come_and_go_while_a_sandbox_runs_and_while_it_sleeps() {
    let place = Place::new();
    let daemon = place.daemon();
    for name in ["a", "b"] {
        volume(daemon, name, json!({})).await;
    }
    let id = daemon.create(json!({ "name": "web", "image": "base" })).await.unwrap();
    let path = format!("/sandboxes/{id}/volumes");
    daemon.post(&path, json!({ "volume": "a", "path": "/a" })).await.unwrap();
    works(daemon, &id, "echo a > /a/file").await;
    for (asked, word) in [
        (json!({ "volume": "b", "path": "/a/b" }), "neither may lie in the other"),
        (json!({ "volume": "b", "path": "/proc/b" }), "/proc is reserved"),
        (json!({ "volume": "b", "path": "relative" }), "absolute"),
        (json!({ "volume": "c", "path": "/c" }), "there is no volume 'c'"),
    ] {
        let why = refused(daemon, Method::POST, &path, Some(asked)).await;
        assert!(why.contains(word), "{why}");
    }
    daemon.post(&path, json!({ "volume": "b", "path": "/b", "subpath": "x/y" })).await.unwrap();
    let busy = json!({ "argv": ["sh", "-c", "cd /b; touch busy; exec sleep 1000"] });
    let process = daemon.post(&format!("/sandboxes/{id}/processes"), busy).await.unwrap();
    let stays = || async { Ok(daemon.exec(&id, &["test", "-e", "/b/busy"]).await?.0 == 0) };
    until(PATIENCE, "it is in there", stays).await.unwrap();
    let why = refused(daemon, Method::DELETE, &format!("{path}?path=/b"), None).await;
    assert!(why.contains("'/b'"), "{why}");
    works(daemon, &id, "echo b > /b/file").await;
    let signal = format!("/sandboxes/{id}/processes/{}/signal", process["process"]);
    daemon.post(&signal, json!({ "signal": 9 })).await.unwrap();
    let gone = || async { Ok(daemon.try_ask(Method::DELETE, &format!("{path}?path=/b"), None).await?.status < 400) };
    until(PATIENCE, "the volume is free", gone).await.unwrap();
    assert_eq!(works(daemon, &id, "ls -A /b; cat /a/file").await, "a");
    daemon.act(&id, "suspend").await.unwrap();
    daemon.ask(Method::DELETE, &format!("{path}?path=/a"), None).await.unwrap();
    daemon.post(&path, json!({ "volume": "b", "path": "/b2" })).await.unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert_eq!(works(daemon, &id, "ls -A /a; cat /b2/x/y/file").await, "b");
    daemon.ask(Method::DELETE, "/volumes/a", None).await.unwrap();
    place.end(&[]).await;
}

#[tokio::test]
async fn children_get_volumes_as_it_is_said_and_a_second_writer_is_refused_beforehand() {
    let place = Place::new();
    let daemon = place.daemon();
    volume(daemon, "data", json!({})).await;
    let id = daemon.create(with("web", json!([{ "volume": "data", "path": "/data" }]))).await.unwrap();
    works(daemon, &id, "echo 1 > /data/a; echo under > /root/file").await;
    let fork = format!("/sandboxes/{id}/fork");
    let why = refused(daemon, Method::POST, &fork, Some(json!({ "count": 1 }))).await;
    assert!(why.contains("'data'") && why.contains("web"), "{why}");
    let child = |made: &Value| made["children"][0]["sandbox"]["id"].as_str().unwrap().to_owned();
    let reading = daemon.post(&fork, json!({ "count": 1, "volumes": "read_only" })).await.unwrap();
    let reading = child(&reading);
    assert_eq!(works(daemon, &reading, "cat /data/a").await, "1");
    assert_ne!(sh(daemon, &reading, "touch /data/b").await.0, 0);
    let none = child(&daemon.post(&fork, json!({ "count": 1, "volumes": "none" })).await.unwrap());
    assert_eq!(works(daemon, &none, "ls -A /data; cat /root/file").await, "under");
    // No snapshot contains data of a volume.
    let snapshot = daemon.checkpoint(&id, "filesystem").await.unwrap()["id"].clone();
    let cold = daemon.create(json!({ "name": "cold", "snapshot": snapshot })).await.unwrap();
    assert_eq!(works(daemon, &cold, "ls -A /data; cat /root/file").await, "under");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_daemon_that_is_killed_loses_no_lease_and_leaves_none() {
    let mut place = Place::new();
    volume(place.daemon(), "data", json!({})).await;
    let asked = with("web", json!([{ "volume": "data", "path": "/data" }]));
    let id = place.daemon().create(asked.clone()).await.unwrap();
    works(place.daemon(), &id, "echo 1 > /data/a").await;
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    let daemon = place.daemon();
    let why = refused(daemon, Method::POST, "/sandboxes", Some(with("two", asked["volumes"].clone()))).await;
    assert!(why.contains(&format!("web ({id})")), "{why}");
    works(daemon, &id, "cat /data/a; echo 2 > /data/b").await;
    // A volume attached after a restart reaches the guest that was running before it.
    volume(daemon, "more", json!({})).await;
    daemon.post(&format!("/sandboxes/{id}/volumes"), json!({ "volume": "more", "path": "/more" })).await.unwrap();
    works(daemon, &id, "echo 3 > /more/c").await;
    daemon.act(&id, "terminate").await.unwrap();
    let two = daemon.create(with("two", asked["volumes"].clone())).await.unwrap();
    assert_eq!(works(daemon, &two, "cat /data/a /data/b").await, "1\n2");
    place.end(&[]).await;
}

#[tokio::test]
async fn a_volume_whose_files_are_gone_is_said_to_be_broken_and_nobody_gets_an_empty_one() {
    let place = Place::new();
    let daemon = place.daemon();
    let made = volume(daemon, "data", json!({})).await;
    std::fs::remove_dir_all(daemon.data().join("volumes").join(made["id"].as_str().unwrap())).unwrap();
    let shown = daemon.get("/volumes/data").await.unwrap();
    assert_eq!(shown["health"], "broken");
    assert!(shown["problem"].as_str().unwrap().contains("gone"), "{shown}");
    let why =
        refused(daemon, Method::POST, "/sandboxes", Some(with("web", json!([{ "volume": "data", "path": "/d" }]))))
            .await;
    assert!(why.contains("are gone"), "{why}");
    daemon.ask(Method::DELETE, "/volumes/data", None).await.unwrap();
    place.end(&[]).await;
}

#[tokio::test]
async fn files_go_in_and_out_without_a_sandbox_and_never_past_the_volume() {
    let place = Place::new();
    let daemon = place.daemon();
    volume(daemon, "data", json!({})).await;
    let put = |path: &str, text: &str| {
        daemon.request(Method::PUT, &format!("/volumes/data/files?path={path}")).body(text.to_owned()).send()
    };
    let written = put("/in/file", "hello").await.unwrap();
    assert_eq!((written.status().as_u16(), written.text().await.unwrap()), (204, String::new()));
    let id = daemon.create(with("web", json!([{ "volume": "data", "path": "/data" }]))).await.unwrap();
    works(daemon, &id, "cat /data/in/file | grep -qx hello && ln -s /etc/passwd /data/out && ln -s ../.. /data/up")
        .await;
    for path in ["out", "up/etc/passwd", "../x", "up"] {
        let answer = daemon.request(Method::GET, &format!("/volumes/data/files?path={path}")).send().await.unwrap();
        assert!(answer.status().as_u16() >= 400, "{path}");
    }
    for path in ["up/file", "../x"] {
        assert!(put(path, "x").await.unwrap().status().as_u16() >= 400, "{path}");
    }
    let listed = daemon.get("/volumes/data/files/list?path=/").await.unwrap();
    let names: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["in", "out", "up"]);
    place.end(&[]).await;
}

#[tokio::test]
async fn a_sandbox_whose_volume_is_gone_sleeps_on_and_says_so() {
    let place = Place::new();
    let daemon = place.daemon();
    let made = volume(daemon, "data", json!({})).await;
    let id = daemon.create(with("web", json!([{ "volume": "data", "path": "/data" }]))).await.unwrap();
    for verb in ["suspend", "evict"] {
        daemon.act(&id, verb).await.unwrap();
    }
    until(PATIENCE, "nobody has it mounted", || async { Ok(health(daemon, "data").await == "idle") }).await.unwrap();
    let (there, away) = (daemon.data().join("volumes").join(made["id"].as_str().unwrap()), daemon.data().join("away"));
    std::fs::rename(&there, &away).unwrap();
    let why = refused(daemon, Method::POST, &format!("/sandboxes/{id}/resume"), Some(json!({}))).await;
    assert!(why.contains("'data'") && why.contains("are gone"), "{why}");
    assert_eq!(daemon.describe(&id).await.unwrap()["state"], "suspended");
    assert_eq!(health(daemon, "data").await, "broken");
    std::fs::rename(&away, &there).unwrap();
    daemon.act(&id, "resume").await.unwrap();
    assert_eq!(works(daemon, &id, "ls -A /data").await, "");
    place.end(&["failed to resume", "are gone"]).await;
}

#[tokio::test]
async fn what_a_killed_daemon_has_mounted_for_volumes_is_taken_over_by_the_next_one() {
    let mut place = Place::new();
    volume(place.daemon(), "data", json!({})).await;
    let asked = with("web", json!([{ "volume": "data", "path": "/data" }]));
    let id = place.daemon().create(asked).await.unwrap();
    let mounts = |daemon: &Daemon| {
        let held = dorm_testing::held_by_kernel(daemon.data());
        held.into_iter().filter(|line| line.contains("/slots ")).collect::<Vec<_>>()
    };
    let before = mounts(place.daemon());
    assert_eq!(before.len(), 1, "{before:?}");
    for _ in 0..2 {
        place.daemon_mut().kill().unwrap();
        place.daemon_mut().start_again().unwrap();
        assert_eq!(mounts(place.daemon()), before);
    }
    works(place.daemon(), &id, "echo 1 > /data/a").await;
    // A daemon that is killed while no sandbox runs leaves its mount to the next daemon, which
    // removes it.
    place.daemon().act(&id, "terminate").await.unwrap();
    place.daemon_mut().kill().unwrap();
    place.daemon_mut().start_again().unwrap();
    place.end(&[]).await;
}

#[tokio::test]
async fn a_set_id_file_or_a_device_that_one_guest_leaves_on_a_volume_gives_the_next_one_nothing() {
    const LEAVE: &str = "
import os, stat, struct
for name, mode in [('id', 0o6755), ('capable', 0o755)]:
    program = '/usr/bin/id' if name == 'id' else '/bin/cat'
    with open(program, 'rb') as source, open('/data/' + name, 'wb') as target:
        target.write(source.read())
    os.chown('/data/' + name, 0, 0)
    os.chmod('/data/' + name, mode)
try: os.setxattr('/data/capable', 'security.capability', struct.pack('<IIIII', 0x2000001, 0x80, 0, 0, 0))
except OSError: pass
try: os.mknod('/data/null', stat.S_IFCHR | 0o666, os.makedev(1, 3))
except OSError: pass
";
    let place = Place::new();
    let daemon = place.daemon();
    volume(daemon, "data", json!({})).await;
    let on_data = json!([{ "volume": "data", "path": "/data" }]);
    let one = daemon.create(with("one", on_data.clone())).await.unwrap();
    let (code, said) = daemon.exec(&one, &["python3", "-c", LEAVE]).await.unwrap();
    assert_eq!(code, 0, "{said}");
    assert_eq!(works(daemon, &one, "stat -c %a /data/id").await, "6755");
    daemon.act(&one, "terminate").await.unwrap();
    let two = daemon.create(with("two", on_data)).await.unwrap();
    assert_eq!(works(daemon, &two, "stat -c '%a %u' /data/id").await, "6755 0", "it is there as it was left");
    let user = "setpriv --reuid 1000 --regid 1000 --clear-groups";
    assert_eq!(works(daemon, &two, &format!("{user} /data/id -u; {user} /data/id -g")).await, "1000\n1000");
    let effective = works(daemon, &two, &format!("{user} /data/capable /proc/self/status | grep CapEff")).await;
    assert!(effective.ends_with("0000000000000000"), "{effective}");
    let (code, said) = sh(daemon, &two, "head -c 1 < /data/null").await;
    assert!(code != 0, "a device of a volume opens: {said}");
    daemon.act(&two, "terminate").await.unwrap();
    daemon.ask(Method::DELETE, "/volumes/data", None).await.unwrap();
    place.end(&[]).await;
}
