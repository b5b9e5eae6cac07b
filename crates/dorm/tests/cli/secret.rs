//! `dorm secret`, and header rules that name secrets.

use dorm_service::{LostSecrets, SecretsKey, Settings};
use serde_json::json;

use crate::world::World;

async fn world() -> World {
    let secrets_key = Some(SecretsKey::new([1; 32], LostSecrets::Refuse));
    World::with(Settings { secrets_key, ..Settings::default() }).await
}

#[tokio::test]
async fn a_secret_is_set_listed_without_its_value_and_removed() {
    let world = world().await;
    let set = world.dorm_with(&["secret", "set", "API_KEY"], b"hunter2\n").await;
    assert_eq!(
        (set.code, set.rows()[1][0].as_str(), set.rows()[1].last().unwrap().as_str()),
        (0, "API_KEY", "nothing")
    );
    std::fs::write(world.path("value"), "another").unwrap();
    let path = world.path("value").display().to_string();
    assert_eq!(world.dorm(&["secret", "set", "OTHER", "--from-file", &path]).await.code, 0);
    let header = "api.example.com: Authorization: Bearer {API_KEY}";
    assert_eq!(world.dorm(&["sbx", "create", "web", "--header", header]).await.code, 0);
    let list = world.dorm(&["secret", "ls"]).await;
    assert!(list.rows()[1].ends_with(&["1 sandbox".to_owned()]) && list.rows()[2][0] == "OTHER", "{list:?}");
    for shown in [world.dorm(&["secret", "ls", "-o", "json"]).await, world.dorm(&["events"]).await, set, list] {
        assert!(!shown.text().contains("hunter2") && !shown.stderr.contains("hunter2"), "{shown:?}");
    }
    assert_eq!(world.dorm(&["secret", "rm", "API_KEY", "OTHER"]).await.code, 0);
    assert_eq!(world.json(&["secret", "ls", "-o", "json"]).await, json!([]));
}

#[tokio::test]
async fn a_value_that_cannot_be_is_refused_and_not_repeated() {
    let world = world().await;
    for (name, input, said) in [
        ("API_KEY", &b""[..], "it is empty"),
        ("API_KEY", b"hunter2\nhunter3", "characters that no header can have"),
        ("1KEY", b"hunter2", "is not the name of a secret"),
    ] {
        let refused = world.dorm_with(&["secret", "set", name], input).await;
        refused.failed(2, said);
        assert!(!refused.stderr.contains("hunter2"), "{refused:?}");
    }
    let typed = ["sbx", "create", "web", "--header", "a.test: Authorization: Bearer hunter2"];
    let refused = world.dorm(&typed).await;
    refused.failed(2, "write HOST: HEADER: VALUE with the name of a secret in braces");
    assert!(!refused.stderr.contains("hunter2"), "{refused:?}");
}

#[tokio::test]
async fn header_rules_are_set_with_the_egress_and_shown() {
    let world = world().await;
    let rule = "api.example.com: Authorization: Bearer {API_KEY}";
    world.named("web").await;
    let changed = world.json(&["sbx", "egress", "web", "public", "--header", rule, "-o", "json"]).await;
    let header = json!({"host": "api.example.com", "port": 443, "name": "Authorization", "value": "Bearer {API_KEY}"});
    assert_eq!(changed["egress"], json!({"ordered": {"rules": [], "default": "public", "headers": [header]}}));
    let described = world.dorm(&["sbx", "describe", "web"]).await;
    for row in [["egress", "public"], ["headers", rule]] {
        assert!(described.rows().iter().any(|shown| shown[..] == row), "{row:?}: {described:?}");
    }
    let denied = world.dorm(&["sbx", "egress", "web", "closed", "--header", rule]).await;
    denied.failed(2, "the egress rules do not allow its host (the default is to deny)");
    let host = world.dorm(&["sbx", "egress", "web", "public", "--header", "api.example.com: Host: {API_KEY}"]).await;
    host.failed(2, "sets 'host', which belongs to the connection");
    assert_eq!(world.json(&["sbx", "egress", "web", "closed", "-o", "json"]).await["egress"], "closed");
}
