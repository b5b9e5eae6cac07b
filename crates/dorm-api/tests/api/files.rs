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
