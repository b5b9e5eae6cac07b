use serde_json::{Value, json};

use crate::world::{World, read};

#[tokio::test]
async fn an_image_is_imported_listed_used_and_removed() {
    let world = World::new().await;
    let source = world.directory.path().join("another");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    let body = json!({"path": source, "tag": "another:1"});
    let (status, image) = read(world.owners("POST", "/v1/images/import").json(&body).send().await.unwrap()).await;
    assert_eq!((status, &image["tags"]), (201, &json!(["another:1"])), "{image}");
    let list = world.get("/v1/images").await;
    assert_eq!(list["images"].as_array().unwrap().len(), 2);
    assert!(list["images"].as_array().unwrap().contains(&image));
    let digest = image["digest"].as_str().unwrap();
    for reference in ["another:1", digest, &digest[..12]] {
        let id = world.create(json!({"image": reference})).await;
        assert_eq!(world.get(&format!("/v1/sandboxes/{id}")).await["image"], digest, "{reference}");
        assert_eq!(world.call("DELETE", "/v1/images/another:1", Value::Null).await.0, 409);
        world.post(&format!("/v1/sandboxes/{id}/terminate"), Value::Null).await;
    }
    assert_eq!(world.call("DELETE", "/v1/images/another:1", Value::Null).await.0, 204);
    assert_eq!(world.get("/v1/images").await["images"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_import_can_be_followed() {
    let world = World::new().await;
    let source = world.directory.path().join("another");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    let request = world.owners("POST", "/v1/images/import").json(&json!({"path": source}));
    let events = world.events_of(request).await.rest().await;
    let last = events.last().unwrap();
    assert_eq!(last.kind, "done", "{events:?}");
    assert_eq!(last.data["tags"], json!([]));
    assert!(events[..events.len() - 1].iter().all(|event| event.kind == "progress"));
    let request = world.owners("POST", "/v1/images/import").json(&json!({"path": "/absent/image"}));
    let failed = world.events_of(request).await.rest().await.pop().unwrap();
    assert_eq!((failed.kind.as_str(), &failed.data["code"]), ("error", &json!("invalid_argument")));
}

/// A tar archive, which stands for one from a registry or `docker save`.
fn archive(path: &std::path::Path, content: &[u8]) {
    let mut builder = tar::Builder::new(std::fs::File::create(path).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    builder.append_data(&mut header, "etc/hello", content).unwrap();
    builder.finish().unwrap();
}

#[tokio::test]
async fn a_key_reads_and_makes_no_files_of_the_host() {
    let world = World::new().await;
    let (secret, target) = (world.directory.path().join("secret.tar"), world.directory.path().join("made.tar"));
    archive(&secret, b"of the host");
    for (path, body) in [
        ("/v1/images/import", json!({"path": secret, "tag": "stolen"})),
        ("/v1/images/import", json!({"path": "/etc", "tag": "stolen"})),
        ("/v1/images/base/export", json!({"path": target})),
    ] {
        let (status, answer) = world.call("POST", path, body.clone()).await;
        assert_eq!((status, &answer["code"]), (403, &json!("forbidden")), "{path} {body}: {answer}");
        assert!(answer["next_step"].as_str().unwrap().contains("/v1/images/upload"), "{answer}");
        let mut request = world.request("POST", path).json(&body);
        request = request.header("x-forwarded-for", "127.0.0.1").header("host", "localhost");
        assert_eq!(read(request.send().await.unwrap()).await.0, 403);
    }
    assert!(!target.exists());
    assert_eq!(world.get("/v1/images").await["images"].as_array().unwrap().len(), 1);
    let (status, answer) =
        read(world.owners("POST", "/v1/images/base/export").json(&json!({"path": target})).send().await.unwrap()).await;
    assert_eq!(status, 201, "{answer}");
    assert!(target.exists());
}

#[tokio::test]
async fn an_archive_is_uploaded_downloaded_and_nothing_else_stays() {
    let world = World::new().await;
    let path = world.directory.path().join("image.tar");
    archive(&path, b"uploaded");
    let content = std::fs::read(&path).unwrap();
    let request = world.request("POST", "/v1/images/upload?tag=mine").body(content.clone());
    let (status, image) = read(request.send().await.unwrap()).await;
    assert_eq!((status, &image["tags"]), (201, &json!(["mine"])), "{image}");
    let request = world.request("POST", "/v1/images/upload").body(content[..700].to_vec());
    let (status, refused) = read(request.send().await.unwrap()).await;
    assert_eq!((status, &refused["code"]), (400, &json!("invalid_argument")), "{refused}");
    let events = world.events_of(world.request("POST", "/v1/images/upload?tag=again").body(content)).await;
    let done = events.rest().await.pop().unwrap();
    assert_eq!((done.kind.as_str(), &done.data["digest"]), ("done", &image["digest"]));

    let answer = world.request("GET", "/v1/images/mine/download").send().await.unwrap();
    assert_eq!(answer.headers()["x-dormouse-image"], image["digest"].as_str().unwrap());
    assert!(answer.headers()["x-dormouse-manifest"].to_str().unwrap().starts_with("sha256:"));
    let length: usize = answer.headers()["content-length"].to_str().unwrap().parse().unwrap();
    let downloaded = answer.bytes().await.unwrap();
    assert_eq!(downloaded.len(), length);
    let request = world.request("POST", "/v1/images/upload?tag=copy").body(downloaded);
    let (status, copy) = read(request.send().await.unwrap()).await;
    assert_eq!((status, &copy["tags"]), (201, &json!(["copy"])), "{copy}");
    let left = || {
        let names = std::fs::read_dir(world.directory.path().join("images")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".import")).count()
    };
    crate::world::eventually("no archive stays", || std::future::ready(left() == 0)).await;
}

#[tokio::test]
async fn an_upload_that_breaks_off_leaves_nothing() {
    use tokio::io::AsyncWriteExt as _;
    let world = World::new().await;
    let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST /v1/images/upload?tag=half HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {}\r\nContent-Length: 100000\r\n\r\n",
        crate::world::KEY
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[0; 5000]).await.unwrap();
    let left = || {
        let names = std::fs::read_dir(world.directory.path().join("images")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".import")).count()
    };
    crate::world::eventually("it has begun", || std::future::ready(left() == 1)).await;
    drop(stream);
    crate::world::eventually("nothing of it stays", || std::future::ready(left() == 0)).await;
    assert_eq!(world.get("/v1/images").await["images"].as_array().unwrap().len(), 1);
}
