use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn an_image_is_imported_listed_used_and_removed() {
    let world = World::new().await;
    let source = world.directory.path().join("another");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    let body = json!({"path": source, "tag": "another:1"});
    let (status, image) = world.call("POST", "/v1/images/import", body).await;
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
    let request = world.request("POST", "/v1/images/import").json(&json!({"path": source}));
    let events = world.events_of(request).await.rest().await;
    let last = events.last().unwrap();
    assert_eq!(last.kind, "done", "{events:?}");
    assert_eq!(last.data["tags"], json!([]));
    assert!(events[..events.len() - 1].iter().all(|event| event.kind == "progress"));
    let request = world.request("POST", "/v1/images/import").json(&json!({"path": "/absent/image"}));
    let failed = world.events_of(request).await.rest().await.pop().unwrap();
    assert_eq!((failed.kind.as_str(), &failed.data["code"]), ("error", &json!("invalid_argument")));
}
