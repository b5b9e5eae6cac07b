//! Snapshots that move from one daemon to another as files.

use dorm_testing::Daemon;
use reqwest::Method;
use serde_json::{Value, json};

use crate::place::{Counter, Place};

async fn exported(daemon: &Daemon, id: &Value) -> Vec<u8> {
    let path = format!("/snapshots/{}/export", id.as_str().unwrap());
    let answer = daemon.request(Method::GET, &path).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    answer.bytes().await.unwrap().to_vec()
}

async fn imported(daemon: &Daemon, file: Vec<u8>) -> Value {
    let answer = daemon.request(Method::POST, "/snapshots/import").body(file).send().await.unwrap();
    let status = answer.status();
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(status.as_u16(), 201, "{body}");
    body
}

#[tokio::test]
async fn memory_continues_and_files_are_all_there_on_another_daemon() {
    let (from, to) = (Place::new(), Place::new());
    let daemon = from.daemon();
    let script = "mkdir -p /data/deep && echo kept > /data/deep/note && ln /data/deep/note /data/hard && \
                  ln -s deep /data/soft && chown 12:34 /data/hard && chmod 4711 /data/hard && rm /etc/issue && \
                  rm -rf /usr/share/doc && truncate -s 64M /data/sparse && echo end >> /data/sparse && mkfifo /data/pipe";
    let look = "stat -c '%n %u %g %a %h %Y' /data/* /data/deep/*; wc -c /data/hard /data/sparse; cat /data/hard; tail -c 4 /data/sparse; \
                readlink /data/soft; ls -a /etc /usr/share; test -p /data/pipe && echo pipe";
    let first = daemon.create(json!({ "image": "base" })).await.unwrap();
    assert_eq!(daemon.exec(&first, &["sh", "-c", script]).await.unwrap(), (0, String::new()));
    let seen = daemon.exec(&first, &["sh", "-c", look]).await.unwrap();
    let files = daemon.checkpoint(&first, "filesystem").await.unwrap()["id"].clone();
    // A memory snapshot over a layer: a counter in a sandbox that was created from those files.
    let mut counter = Counter::create(daemon, json!({ "name": "web", "snapshot": files })).await;
    counter.is_whole(daemon).await;
    let memory = daemon.checkpoint(&counter.id, "memory").await.unwrap()["id"].clone();
    let then = counter.visits();
    let other = to.daemon();
    let taken = imported(other, exported(daemon, &files).await).await;
    let id = other.create(json!({ "snapshot": taken["id"] })).await.unwrap();
    assert_eq!(other.exec(&id, &["sh", "-c", look]).await.unwrap(), seen);
    let taken = imported(other, exported(daemon, &memory).await).await;
    let mut child = counter.child(&other.create(json!({ "snapshot": taken["id"] })).await.unwrap());
    child.back_to(then);
    child.is_whole(other).await;
    assert_eq!(other.exec(&child.id, &["sh", "-c", look]).await.unwrap(), seen);
    // The layer is kept with its snapshot.
    let all = other.get("/snapshots").await.unwrap()["snapshots"].as_array().unwrap().len();
    assert_eq!(all, 3, "two snapshots and the layer of one");
    from.end(&[]).await;
    to.end(&[]).await;
}
