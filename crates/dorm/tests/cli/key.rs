//! `dorm key`, and the access that a created key gives.

use serde_json::json;

use crate::world::{World, end};

#[tokio::test]
async fn a_key_is_made_listed_and_revoked() {
    let world = World::new().await;
    world.named("web").await;
    world.named("other").await;
    let made = world.json(&["key", "create", "agent", "--sandbox", "web", "--expires", "30d", "-o", "json"]).await;
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let with_it = async |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("DORM_KEY", key);
        end(command, b"").await
    };
    assert_eq!(with_it(&["sbx", "suspend", "web"]).await.code, 0);
    let refused = with_it(&["sbx", "describe", "other"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("this key gives access to sandbox"), "{}", refused.stderr);
    let rows = world.table(&["key", "ls"]).await;
    assert_eq!(rows[0], ["ID", "NAME", "PROJECT", "ACCESS", "CREATED", "EXPIRES"]);
    assert_eq!(rows[1][..3], [id.to_owned(), "agent".to_owned(), "local".to_owned()]);
    let sandbox = world.json(&["sbx", "describe", "web", "-o", "json"]).await["id"].as_str().unwrap().to_owned();
    assert_eq!(rows[1][3], format!("sandbox {sandbox}"));
    assert!(!world.dorm(&["key", "ls", "-o", "json"]).await.text().contains(key));
    assert_eq!(world.dorm(&["key", "rm", id]).await.code, 0);
    let refused = with_it(&["sbx", "describe", "web"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("an API key is required"), "{}", refused.stderr);
    assert_eq!(world.json(&["key", "ls", "-o", "json"]).await, json!([]));
    world.dorm(&["key", "create", "--read-only", "--sandbox", "web"]).await.failed(2, "--read-only");
}

#[tokio::test]
async fn a_link_opens_a_private_port() {
    let world = World::new().await;
    let create = ["sbx", "create", "web", "--ports", "private", "-o", "json"];
    assert_eq!(world.json(&create).await["port_access"], "private");
    let plain = world.dorm(&["sbx", "port", "web", "8000"]).await.text();
    let link = world.dorm(&["sbx", "port", "web", "8000", "--link"]).await.text();
    assert!(link.starts_with(plain.trim_end()) && link.contains("/.dormouse/open?ticket="), "{link}");
    let (host, path) = link.trim_end().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let visit = async || {
        let request = client.get(format!("http://{}/{path}", world.address)).header("host", host);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((visit().await, visit().await), (303, 403));
    world.dorm(&["sbx", "port", "web", "8000", "--link", "--local", "0"]).await.failed(2, "--link");
}
