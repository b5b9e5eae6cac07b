//! The daemon that clients expect in a sandbox: who may call it, processes, files, and how streams
//! end.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::world::{Answer, World};

const ENVD: &str = "49983";

/// A sandbox and its access token.
struct Envd<'a> {
    world: &'a World,
    id: String,
    token: String,
}

impl<'a> Envd<'a> {
    async fn new(world: &'a World, mut body: Value) -> Self {
        body["templateID"] = json!("base");
        let created = world.call("POST", "/v2/sandboxes", body).await.json();
        let text = |key: &str| created[key].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
        Self { world, id: text("sandboxID"), token: text("envdAccessToken") }
    }

    /// A request without a token.
    fn plain(&self, method: &str, path: &str) -> RequestBuilder {
        let request = self.world.request(method, path);
        request.header("e2b-sandbox-id", &self.id).header("e2b-sandbox-port", ENVD)
    }

    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.plain(method, path).header("x-access-token", &self.token)
    }

    async fn unary(&self, method: &str, message: Value) -> Answer {
        self.world.send(self.request("POST", &format!("/{method}")).json(&message)).await
    }

    /// Opens a stream.
    async fn open(&self, method: &str, message: Value) -> Response {
        let request = self.request("POST", &format!("/{method}")).header("content-type", "application/connect+json");
        let response = request.body(frame(&message)).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/connect+json");
        response
    }

    /// Reads a stream to its end: its messages, and the last frame.
    async fn stream(&self, method: &str, message: Value) -> (Vec<Value>, Value) {
        let body = self.open(method, message).await.bytes().await.unwrap();
        let mut frames = frames(&body);
        let (flags, last) = frames.pop().unwrap();
        assert_eq!(flags, 2);
        assert!(frames.iter().all(|(flags, _)| *flags == 0), "{frames:?}");
        (frames.into_iter().map(|(_, message)| message).collect(), last)
    }

    async fn write(&self, path: &str, content: &str) -> Answer {
        let request = self.request("POST", "/files").query(&[("path", path)]);
        self.world.send(request.header("content-type", "application/octet-stream").body(content.to_owned())).await
    }

    async fn pause(&self) {
        self.world.call("POST", &format!("/sandboxes/{}/pause", self.id), json!({})).await;
    }

    async fn kill(&self) {
        self.world.call("DELETE", &format!("/sandboxes/{}", self.id), Value::Null).await;
    }

    fn not_found(&self) -> String {
        format!(r#"{{"sandboxId":"{}","message":"The sandbox was not found","code":502}}"#, self.id)
    }
}

fn frame(message: &Value) -> Vec<u8> {
    let json = message.to_string().into_bytes();
    let mut frame = vec![0];
    frame.extend(u32::try_from(json.len()).unwrap().to_be_bytes());
    frame.extend(json);
    frame
}

fn frames(mut bytes: &[u8]) -> Vec<(u8, Value)> {
    let mut frames = Vec::new();
    while let Some((&[flags, a, b, c, d], rest)) = bytes.split_first_chunk::<5>() {
        let (json, rest) = rest.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        frames.push((flags, serde_json::from_slice(json).unwrap()));
        bytes = rest;
    }
    frames
}

fn shell(script: &str) -> Value {
    json!({ "process": { "cmd": "/bin/sh", "args": ["-c", script] } })
}

fn output(messages: &[Value], kind: &str) -> String {
    let pieces = messages.iter().filter_map(|message| message["event"]["data"][kind].as_str());
    pieces.map(|piece| String::from_utf8(STANDARD.decode(piece).unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn a_process_tells_its_start_its_output_and_its_end() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let (messages, last) = envd.stream("process.Process/Start", shell("echo hi; exit 3")).await;
    assert!(messages[0]["event"]["start"]["pid"].as_u64().unwrap() > 0);
    assert_eq!(output(&messages, "stdout"), "hi\n");
    let end = json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" });
    assert_eq!(messages.last().unwrap()["event"]["end"], end);
    assert_eq!(last, json!({}));
    // A late reader learns how it ended.
    let selector = json!({ "process": messages[0]["event"]["start"] });
    let (messages, _) = envd.stream("process.Process/Connect", selector).await;
    assert_eq!((messages.len(), &messages[1]["event"]["end"]["exitCode"]), (2, &json!(3)));
}

#[tokio::test]
async fn what_cannot_be_started_is_the_end_of_the_stream() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let mut elsewhere = shell("true");
    elsewhere["process"]["cwd"] = json!("/nowhere");
    for (message, code, text) in [
        (elsewhere, "invalid_argument", "cwd '/nowhere' does not exist"),
        (json!({}), "invalid_argument", "the request names no process to start"),
        (json!({ "process": { "cmd": 1 } }), "invalid_argument", "invalid message"),
    ] {
        let (messages, last) = envd.stream("process.Process/Start", message).await;
        assert_eq!((messages.len(), &last["error"]["code"]), (0, &json!(code)));
        assert!(last["error"]["message"].as_str().unwrap().starts_with(text), "{last}");
    }
}

#[tokio::test]
async fn a_process_is_named_by_pid_or_tag_and_gets_input_and_signals() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let mut start = json!({ "process": { "cmd": "cat" } });
    start["tag"] = json!("reader");
    let mut stream = envd.open("process.Process/Start", start).await;
    let first = frames(&stream.chunk().await.unwrap().unwrap());
    let pid = &first[0].1["event"]["start"]["pid"];
    let listed = envd.unary("process.Process/List", json!({})).await.json();
    let own = listed["processes"].as_array().unwrap().iter().find(|one| one["pid"] == *pid).unwrap();
    assert_eq!((&own["tag"], &own["config"]["cmd"]), (&json!("reader"), &json!("cat")));
    let by_tag = json!({ "tag": "reader" });
    let input = json!({ "process": by_tag, "input": { "stdin": STANDARD.encode("hello\n") } });
    assert_eq!(envd.unary("process.Process/SendInput", input).await.text, "{}");
    let wrong = json!({ "process": by_tag, "input": { "pty": "eA==" } });
    assert_eq!(envd.unary("process.Process/SendInput", wrong).await.json()["code"], "internal");
    let signal = json!({ "process": by_tag, "signal": "SIGNAL_UNSPECIFIED" });
    assert_eq!(envd.unary("process.Process/SendSignal", signal).await.status, 501);
    let signal = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
    assert_eq!(envd.unary("process.Process/SendSignal", signal).await.text, "{}");
    let mut rest = Vec::new();
    while let Some(piece) = stream.chunk().await.unwrap() {
        rest.extend_from_slice(&piece);
    }
    let rest: Vec<Value> = frames(&rest).into_iter().map(|(_, message)| message).collect();
    assert_eq!(output(&rest, "stdout"), "hello\n");
    let end = &rest[rest.len() - 2]["event"]["end"];
    assert_eq!((&end["exitCode"], &end["error"]), (&json!(-1), &json!("signal: killed")));
    for key in [json!({ "pid": 999_999 }), json!({ "tag": "nobody" })] {
        let refused = envd.unary("process.Process/SendSignal", json!({ "process": key, "signal": 15 })).await;
        assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("not_found")));
    }
}

#[tokio::test]
async fn a_kill_breaks_open_streams_and_the_sandbox_is_not_found_then() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let mut process = envd.open("process.Process/Start", shell("sleep 1000")).await;
    let mut watch = envd.open("filesystem.Filesystem/WatchDir", json!({ "path": "/" })).await;
    assert!(process.chunk().await.unwrap().is_some());
    assert!(watch.chunk().await.unwrap().is_some());
    envd.kill().await;
    // A body that ends without its last chunk is an error.
    assert!(process.chunk().await.is_err());
    assert!(watch.chunk().await.is_err());
    for request in [
        envd.plain("GET", "/health"),
        envd.request("GET", "/files?path=/etc"),
        envd.request("POST", "/process.Process/List").json(&json!({})),
    ] {
        let answer = world.send(request).await;
        assert_eq!((answer.status, answer.text), (502, envd.not_found()));
    }
}

#[tokio::test]
async fn a_call_needs_the_token_of_its_sandbox() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let other = Envd::new(&world, json!({})).await;
    assert_eq!(world.send(envd.plain("GET", "/health")).await.status, 204);
    for path in ["/envs", "/metrics", "/files?path=/etc"] {
        assert_eq!(world.send(envd.plain("GET", path)).await.refusal().0, 401, "{path}");
        let wrong = envd.plain("GET", path).header("x-access-token", &other.token);
        assert_eq!(world.send(wrong).await.refusal().0, 401, "{path}");
    }
    let list = envd.plain("POST", "/process.Process/List").json(&json!({}));
    assert_eq!(world.send(list).await.refusal().0, 401);
    let internal = envd.request("POST", "/init").json(&json!({}));
    assert_eq!(world.send(internal).await.refusal().0, 404);
    let mut body = json!({ "secure": false, "envVars": { "A": "1" } });
    body["templateID"] = json!("base");
    let open = world.call("POST", "/sandboxes", body).await.json();
    let open = Envd { world: &world, id: open["sandboxID"].as_str().unwrap().to_owned(), token: String::new() };
    assert_eq!(world.send(open.plain("GET", "/envs")).await.json(), json!({ "A": "1" }));
}

#[tokio::test]
async fn a_web_page_may_call_with_any_headers() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let asked = envd.plain("OPTIONS", "/files").header("access-control-request-headers", "x-access-token");
    let answer = world.send(asked).await;
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("x-access-token"));
}

#[tokio::test]
async fn a_signature_finds_its_sandbox_and_expires() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let _other = Envd::new(&world, json!({})).await;
    assert_eq!(envd.write("/a.txt", "signed").await.status, 200);
    let sign = |expires: u64| {
        let signed = format!("/a.txt:read::{}:{expires}", envd.token);
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(signed)))
    };
    let url = |expires: u64, signature: &str| {
        let query = [("path", "/a.txt"), ("signature", signature), ("signature_expiration", &expires.to_string())]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        world.request("GET", "/files").query(&query)
    };
    let far = 99_999_999_999;
    assert_eq!(world.send(url(far, &sign(far))).await.text, "signed");
    let expired = world.send(url(1, &sign(1))).await;
    assert_eq!(expired.text, r#"{"code":401,"message":"signature is already expired"}"#);
    let wrong = world.send(url(far, &sign(1))).await.refusal();
    assert_eq!(wrong, (401, "invalid signature".to_owned()));
    let missing = world.send(envd.plain("GET", "/files?path=/a.txt")).await.refusal();
    assert_eq!(missing, (401, "missing signature query parameter".to_owned()));
}

#[tokio::test]
async fn a_paused_sandbox_is_resumed_by_its_token_alone() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({ "autoPause": true, "autoResume": { "enabled": true } })).await;
    envd.pause().await;
    for request in [envd.plain("GET", "/health"), envd.plain("GET", "/health").header("x-access-token", "wrong")] {
        let (status, message) = world.send(request).await.refusal();
        assert_eq!(status, 403);
        assert!(message.starts_with("This sandbox can't be resumed with the credentials provided."), "{message}");
    }
    assert_eq!(world.describe(&envd.id).await["state"], "paused");
    assert_eq!(world.send(envd.request("GET", "/health")).await.status, 204);
    assert_eq!(world.describe(&envd.id).await["state"], "running");
    let still = Envd::new(&world, json!({})).await;
    still.pause().await;
    let answer = world.send(still.request("GET", "/health")).await;
    assert_eq!((answer.status, answer.text), (502, still.not_found()));
}

#[tokio::test]
async fn files_are_written_read_listed_moved_and_removed() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let written = envd.write("/d/a.txt", "0123456789").await;
    assert_eq!(written.json(), json!([{ "name": "a.txt", "path": "/d/a.txt", "type": "file" }]));
    let part = world.send(envd.request("GET", "/files?path=/d/a.txt").header("range", "bytes=2-4")).await;
    assert_eq!((part.status, part.text.as_str(), part.header("content-range")), (206, "234", Some("bytes 2-4/10")));
    envd.write("/d/empty", "").await;
    let empty = world.send(envd.request("GET", "/files?path=/d/empty")).await;
    assert_eq!((empty.status, empty.header("content-length")), (200, Some("0")));
    let missing = world.send(envd.request("GET", "/files?path=x")).await.refusal();
    assert_eq!(missing, (404, "path 'x' does not exist".to_owned()));
    assert_eq!(world.send(envd.request("GET", "/files?path=/d")).await.refusal().0, 400);
    let listed = envd.unary("filesystem.Filesystem/ListDir", json!({ "path": "/d" })).await.json();
    let names = listed["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["a.txt", "empty"]);
    let moved = envd.unary("filesystem.Filesystem/Move", json!({ "source": "/d/a.txt", "destination": "/e/b" })).await;
    let entry = &moved.json()["entry"];
    assert_eq!((&entry["path"], &entry["size"], &entry["mode"]), (&json!("/e/b"), &json!("10"), &json!(0o644)));
    let again = envd.unary("filesystem.Filesystem/MakeDir", json!({ "path": "/d" })).await;
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("already_exists")));
    for _ in 0..2 {
        assert_eq!(envd.unary("filesystem.Filesystem/Remove", json!({ "path": "/d" })).await.text, "{}");
    }
    let gone = envd.unary("filesystem.Filesystem/Stat", json!({ "path": "/d" })).await;
    assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("not_found")));
}

#[tokio::test]
async fn a_form_writes_each_file_once() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    let part = |name: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{name}\r\n")
    };
    let post = |body: String| {
        let request = envd.request("POST", "/files").header("content-type", "multipart/form-data; boundary=b");
        world.send(request.header("x-metadata-Kind", "report").body(body))
    };
    let written = post(format!("{}{}--b--\r\n", part("/f/1"), part("/f/2"))).await.json();
    assert_eq!(written[1], json!({ "name": "2", "path": "/f/2", "type": "file", "metadata": { "kind": "report" } }));
    let entry = envd.unary("filesystem.Filesystem/Stat", json!({ "path": "/f/1" })).await.json();
    assert_eq!(entry["entry"]["metadata"], json!({ "kind": "report" }));
    let (status, message) = post(format!("{}{}--b--\r\n", part("/f/3"), part("/f/../f/3"))).await.refusal();
    assert_eq!(status, 400);
    assert!(message.contains("same path"), "{message}");
    assert_eq!(post("--b--\r\n".to_owned()).await.refusal().0, 400);
}

#[tokio::test]
async fn a_new_file_is_shown_to_those_who_watch() {
    let world = World::new().await;
    let envd = Envd::new(&world, json!({})).await;
    envd.unary("filesystem.Filesystem/MakeDir", json!({ "path": "/w" })).await;
    let created =
        envd.unary("filesystem.Filesystem/CreateWatcher", json!({ "path": "/w", "includeEntry": true })).await;
    let watcher = created.json();
    envd.write("/w/new", "x").await;
    let events = envd.unary("filesystem.Filesystem/GetWatcherEvents", watcher.clone()).await.json();
    let events = events["events"].as_array().unwrap().clone();
    assert_eq!((&events[0]["type"], &events[0]["name"]), (&json!("EVENT_TYPE_CREATE"), &json!("new")));
    assert_eq!(events[0]["entry"]["path"], "/w/new");
    let none = envd.unary("filesystem.Filesystem/GetWatcherEvents", watcher.clone()).await.json();
    assert_eq!(none, json!({ "events": [] }));
    assert_eq!(envd.unary("filesystem.Filesystem/RemoveWatcher", watcher.clone()).await.text, "{}");
    let gone = envd.unary("filesystem.Filesystem/GetWatcherEvents", watcher).await;
    assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("not_found")));
}
