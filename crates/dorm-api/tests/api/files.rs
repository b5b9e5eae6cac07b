use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::world::{World, read};

#[tokio::test]
async fn files_are_written_found_and_removed() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let files = format!("/v1/sandboxes/{id}/files");
    let put = world.request("PUT", &format!("{files}?path=/work/a%20b/c.txt&mode=0600")).body("content");
    let (status, stat) = read(put.send().await.unwrap()).await;
    assert_eq!((status, &stat["mode"], &stat["size_bytes"]), (200, &json!("0600"), &json!(7)), "{stat}");
    assert_eq!((&stat["path"], &stat["kind"]), (&json!("/work/a b/c.txt"), &json!("file")));
    assert_eq!(world.get(&format!("{files}/stat?path=/work/a%20b/c.txt")).await, stat);
    let got = world.request("GET", &format!("{files}?path=/work/a%20b/c.txt")).send().await.unwrap();
    assert_eq!(got.headers()["content-length"], "7");
    assert_eq!(got.headers()["content-type"], "application/octet-stream");
    assert_eq!(got.text().await.unwrap(), "content");
    let made = world.post(&format!("{files}/mkdir"), json!({"path": "/work/d/e"})).await;
    assert_eq!(made["kind"], "directory");
    let moved = json!({"from": "/work/a b/c.txt", "to": "/work/d/f"});
    assert_eq!(world.post(&format!("{files}/rename"), moved).await["path"], "/work/d/f");
    let paths = async |query: &str| {
        let list = world.get(&format!("{files}/list?{query}")).await;
        list["entries"].as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(paths("path=/work").await, ["/work/a b", "/work/d"]);
    assert_eq!(paths("path=/work&depth=9").await, ["/work/a b", "/work/d", "/work/d/e", "/work/d/f"]);
    let remove = async |query: &str| world.call("DELETE", &format!("{files}?{query}"), Value::Null).await.0;
    assert_eq!(remove("path=/work").await, 409);
    assert_eq!(remove("path=/work/d/f").await, 204);
    assert_eq!(remove("path=/work&recursive=true").await, 204);
    assert_eq!(remove("path=/work").await, 404);
    let orphan = world.request("PUT", &format!("{files}?path=/no/where&parents=false")).body("x").send().await.unwrap();
    assert_eq!(orphan.status(), 404);
}

#[tokio::test]
async fn lists_come_page_by_page() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let sandbox = format!("/v1/sandboxes/{id}");
    for name in ["a", "b", "c"] {
        world.post(&format!("{sandbox}/files/mkdir"), json!({"path": format!("/work/{name}")})).await;
        world.post(&format!("{sandbox}/processes"), json!({"argv": ["echo", name]})).await;
    }
    for (list, what) in [("files/list?path=/work", "entries"), ("processes?", "processes")] {
        let whole = world.get(&format!("{sandbox}/{list}")).await;
        assert_eq!((whole[what].as_array().map(Vec::len), &whole["next"]), (Some(3), &Value::Null));
        let first = world.get(&format!("{sandbox}/{list}&limit=2")).await;
        let next = first["next"].as_str().unwrap();
        let rest = world.get(&format!("{sandbox}/{list}&limit=2&after={next}")).await;
        let pages = [&first, &rest].into_iter().flat_map(|page| page[what].as_array().unwrap().clone());
        assert_eq!(json!(pages.collect::<Vec<_>>()), whole[what]);
        assert_eq!((rest[what].as_array().map(Vec::len), &rest["next"]), (Some(1), &Value::Null));
        let (status, refused) = world.call("GET", &format!("{sandbox}/{list}&limit=1001"), Value::Null).await;
        assert_eq!(status, 400, "{refused}");
    }
    let (status, refused) = world.call("GET", &format!("{sandbox}/files/list?path=/&after=%2Fwork"), Value::Null).await;
    assert_eq!(status, 400, "{refused}");
}

#[tokio::test]
async fn a_part_of_a_file_can_be_read() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/files?path=/digits");
    world.request("PUT", &path).body("0123456789").send().await.unwrap().error_for_status().unwrap();
    for (range, status, shown, body) in [
        ("bytes=0-", 206, "bytes 0-9/10", "0123456789"),
        ("bytes=3-5", 206, "bytes 3-5/10", "345"),
        ("bytes=7-99", 206, "bytes 7-9/10", "789"),
        ("bytes=-2", 206, "bytes 8-9/10", "89"),
        ("bytes=0-1,4-5", 200, "", "0123456789"),
        ("nonsense", 200, "", "0123456789"),
    ] {
        let got = world.request("GET", &path).header("range", range).send().await.unwrap();
        assert_eq!(got.status(), status, "{range}");
        let header = got.headers().get("content-range").map_or("", |value| value.to_str().unwrap()).to_owned();
        assert_eq!(got.headers()["content-length"].to_str().unwrap(), body.len().to_string(), "{range}");
        assert_eq!((header.as_str(), got.text().await.unwrap().as_str()), (shown, body), "{range}");
    }
    let beyond = world.request("GET", &path).header("range", "bytes=10-").send().await.unwrap();
    assert_eq!((beyond.status().as_u16(), &beyond.headers()["content-range"]), (416, &"bytes */10".parse().unwrap()));
    let head = world.request("HEAD", &path).send().await.unwrap();
    assert_eq!((head.status().as_u16(), &head.headers()["content-length"]), (200, &"10".parse().unwrap()));
}

const CHUNK: usize = 256 << 10;
const CHUNKS: u64 = 256;

/// All chunks differ, so that a missing or repeated one is found.
fn chunk(number: u64) -> Bytes {
    number.to_le_bytes().repeat(CHUNK / 8).into()
}

#[tokio::test]
async fn sixty_four_mebibytes_go_in_and_come_out_unharmed_also_to_a_slow_reader() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/files?path=/large");
    let body = stream::iter((0..CHUNKS).map(|number| Ok::<_, std::io::Error>(chunk(number))));
    let sent = world.request("PUT", &path).body(reqwest::Body::wrap_stream(body)).send().await.unwrap();
    let (status, stat) = read(sent).await;
    assert_eq!((status, stat["size_bytes"].as_u64().unwrap()), (200, CHUNKS * CHUNK as u64));
    let got = world.request("GET", &path).send().await.unwrap();
    assert_eq!(got.headers()["content-length"].to_str().unwrap(), (CHUNKS * CHUNK as u64).to_string());
    let mut contents = got.bytes_stream();
    let mut buffer = contents.next().await.unwrap().unwrap().to_vec();
    // While the rest is not read, other requests are still answered.
    for _ in 0..5 {
        assert_eq!(world.get(&format!("/v1/sandboxes/{id}/files/stat?path=/large")).await["kind"], "file");
    }
    let mut number = 0;
    loop {
        while buffer.len() >= CHUNK {
            let next: Vec<u8> = buffer.drain(..CHUNK).collect();
            assert!(next == chunk(number), "chunk {number}");
            number += 1;
        }
        match contents.next().await {
            Some(bytes) => buffer.extend_from_slice(&bytes.unwrap()),
            None => break,
        }
    }
    assert_eq!((number, buffer.len()), (CHUNKS, 0));
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_the_old_file() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}/files?path=/file");
    world.request("PUT", &path).body("old").send().await.unwrap().error_for_status().unwrap();
    let broken = stream::iter([Ok(Bytes::from_static(b"new")), Err(std::io::Error::other("broken off"))]);
    world.request("PUT", &path).body(reqwest::Body::wrap_stream(broken)).send().await.unwrap_err();
    assert_eq!(world.request("GET", &path).send().await.unwrap().text().await.unwrap(), "old");
}

#[tokio::test]
async fn changes_in_a_directory_are_reported() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let files = format!("/v1/sandboxes/{id}/files");
    world.post(&format!("{files}/mkdir"), json!({"path": "/watched/below"})).await;
    let mut here = world.events(&format!("{files}/watch?path=/watched")).await;
    let mut below = world.events(&format!("{files}/watch?path=/watched&recursive=true")).await;
    for name in ["below/deep", "new"] {
        let put = world.request("PUT", &format!("{files}?path=/watched/{name}")).body("x");
        put.send().await.unwrap().error_for_status().unwrap();
    }
    let first = here.next().await.unwrap();
    assert_eq!((first.kind.as_str(), &first.data["path"]), ("change", &json!("/watched/new")), "{first:?}");
    let first = below.next().await.unwrap();
    assert_eq!(first.data["path"], "/watched/below/deep");
    world.end().await;
}

#[tokio::test]
async fn files_are_written_in_place_and_have_attributes() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let files = format!("/v1/sandboxes/{id}/files");
    let put = async |query: &str, body: &'static str| {
        let put = world.request("PUT", &format!("{files}?path=/work/file&{query}")).body(body);
        read(put.send().await.unwrap()).await
    };
    put("mode=0640&user=user", "0123456789").await;
    for (query, body, expected) in
        [("offset=4", "xy", "0123xy6789"), ("append=true", "z", "0123xy6789z"), ("in_place=true", "new", "new")]
    {
        let (status, stat) = put(query, body).await;
        assert_eq!((status, &stat["mode"], &stat["owner"]), (200, &json!("0640"), &json!("user")), "{stat}");
        let got = world.request("GET", &format!("{files}?path=/work/file")).send().await.unwrap();
        assert_eq!(got.text().await.unwrap(), expected, "{query}");
    }
    let attributes = format!("{files}/attributes");
    let set = json!([{"name": "user.b", "value": {"base64": "/w=="}}, {"name": "user.a", "value": "1"}]);
    let expected =
        json!({"attributes": [{"name": "user.a", "value": "1"}, {"name": "user.b", "value": {"base64": "/w=="}}]});
    assert_eq!(world.post(&attributes, json!({"path": "/work/file", "set": set})).await, expected);
    put("in_place=true", "kept").await;
    assert_eq!(world.get(&format!("{attributes}?path=/work/file")).await, expected);
    let left = world.post(&attributes, json!({"path": "/work/file", "remove": ["user.a", "user.c"]})).await;
    assert_eq!(left["attributes"].as_array().map(Vec::len), Some(1), "{left}");
    let moved = json!({"from": "/work/file", "to": "/new/place/file", "parents": true, "user": "user"});
    assert_eq!(world.post(&format!("{files}/rename"), moved).await["path"], "/new/place/file");
    assert_eq!(world.get(&format!("{files}/stat?path=/new")).await["owner"], "user");
    let made = json!({"path": "/one/two", "exclusive": true});
    assert_eq!(world.post(&format!("{files}/mkdir"), made.clone()).await["kind"], "directory");
    let (status, refused) = world.call("POST", &format!("{files}/mkdir"), made).await;
    assert_eq!(status, 409, "{refused}");
}

#[tokio::test]
async fn a_watcher_keeps_changes_across_a_suspend() {
    let world = World::new().await;
    let id = world.named("web").await;
    let sandbox = format!("/v1/sandboxes/{id}");
    world.post(&format!("{sandbox}/files/mkdir"), json!({"path": "/watched/below"})).await;
    let (status, made) =
        world.call("POST", &format!("{sandbox}/watchers"), json!({"path": "/watched", "recursive": true})).await;
    assert_eq!((status, &made["watcher"], &made["recursive"]), (201, &json!(1), &json!(true)), "{made}");
    let write = async |name: &str| {
        let put = world.request("PUT", &format!("{sandbox}/files?path=/watched/{name}")).body("x");
        put.send().await.unwrap().error_for_status().unwrap();
    };
    write("one").await;
    world.post(&format!("{sandbox}/suspend"), Value::Null).await;
    world.post(&format!("{sandbox}/resume"), Value::Null).await;
    write("below/two").await;
    let events = format!("{sandbox}/watchers/1/events");
    let first = world.get(&format!("{events}?limit=1")).await;
    let one = json!({"number": 1, "kind": "created", "path": "/watched/one"});
    assert_eq!(first, json!({"events": [one], "next": "1", "more": true}));
    let rest = world.get(&format!("{events}?after=1")).await;
    let two = json!({"number": 2, "kind": "created", "path": "/watched/below/two"});
    assert_eq!(rest, json!({"events": [two], "next": "2", "more": false}));
    let (status, future) = world.call("GET", &format!("{events}?after=3"), Value::Null).await;
    assert_eq!(status, 400, "{future}");
    let listed = json!({"watchers": [{"watcher": 1, "path": "/watched", "recursive": true, "last": 2}]});
    assert_eq!(world.get(&format!("{sandbox}/watchers")).await, listed);
    assert_eq!(world.call("DELETE", &format!("{sandbox}/watchers/1"), Value::Null).await.0, 204);
    assert_eq!(world.get(&format!("{sandbox}/watchers")).await, json!({"watchers": []}));
}

#[tokio::test]
async fn files_and_lines_are_found_and_limits_are_named() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let files = format!("/v1/sandboxes/{id}/files");
    for (path, content) in [("a.rs", "first\nthe Needle\n"), ("b/c.rs", "needle"), ("b/d", "a\0needle")] {
        let put = world.request("PUT", &format!("{files}?path=/work/{path}")).body(content).send().await.unwrap();
        put.error_for_status().unwrap();
    }
    let found = world.get(&format!("{files}/find?path=/work&name=*.rs")).await;
    let paths: Vec<_> = found["files"].as_array().unwrap().iter().map(|file| &file["path"]).collect();
    assert_eq!(paths, ["/work/a.rs", "/work/b/c.rs"]);
    let end = json!({
        "truncated_by": null, "entries": 4, "read_bytes": 0, "binary_files": 0, "unreadable": 0,
        "skipped_directories": 0,
    });
    assert_eq!(found["search"], end);
    let directories = world.get(&format!("{files}/find?path=/work&kind=directory")).await;
    assert_eq!(directories["files"][0]["path"], "/work/b");
    let found = world.get(&format!("{files}/grep?path=/work&pattern=NEED.E&ignore_case=true&limit=1")).await;
    let line = json!({
        "path": "/work/a.rs", "line": 2, "offset": 4, "text": "the Needle", "text_offset": 0, "cut": false,
    });
    assert_eq!((&found["lines"], &found["search"]["truncated_by"]), (&json!([line]), &json!("results")));
    let found = world.get(&format!("{files}/grep?path=/work&pattern=needle&literal=true")).await;
    assert_eq!((&found["search"]["binary_files"], found["lines"].as_array().unwrap().len()), (&json!(1), 1));
    for (query, message) in [
        ("grep?path=/work&pattern=(", "regular expression"),
        ("grep?path=/work&pattern=x&name=%5B", "pattern"),
        ("grep?path=/work&pattern=x&limit=10001", "limit is 10001"),
        ("grep?path=/work&pattern=x&timeout_secs=0", "timeout_secs is 0"),
        ("grep?path=/work&pattern=x&depth=0", "depth is 0"),
        ("grep?path=/work", "pattern"),
        ("find?path=work", "absolute"),
        ("find?path=/work&kind=socket", "kind"),
    ] {
        let (status, refused) = world.call("GET", &format!("{files}/{query}"), Value::Null).await;
        assert_eq!(status, 400, "{query}: {refused}");
        assert!(refused["detail"].as_str().unwrap().contains(message), "{query}: {refused}");
    }
    assert_eq!(world.call("GET", &format!("{files}/find?path=/nowhere"), Value::Null).await.0, 404);
}
