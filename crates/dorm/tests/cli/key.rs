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

#[tokio::test]
async fn the_environment_of_a_client_opens_its_project_and_no_other() {
    let world = World::new().await;
    world.named("web").await;
    let owners = world.json(&["env", "-o", "json"]).await;
    assert_eq!(owners["DORM_SERVER"], json!(format!("http://{}", world.address)));
    let text = world.dorm(&["env"]).await.text();
    let key = owners["DORM_KEY"].as_str().unwrap();
    assert_eq!(text, format!("export DORM_KEY='{key}'\nexport DORM_SERVER='http://{}'\n", world.address));
    world.json(&["project", "create", "team", "-o", "json"]).await;
    world.dorm(&["env", "--project", "team"]).await.failed(2, "--new-key");
    let teams = world.json(&["env", "--project", "team", "--new-key", "ci", "-o", "json"]).await;
    let mut command = world.command(&["sbx", "ls", "-o", "json"]);
    for name in ["DORM_SERVER", "DORM_KEY"] {
        command.env(name, teams[name].as_str().unwrap());
    }
    let seen = end(command, b"").await;
    assert_eq!((seen.code, seen.text().trim()), (0, "[]"), "{}", seen.stderr);
}

#[tokio::test]
async fn single_ports_have_rules_of_their_own() {
    let world = World::new().await;
    let asked =
        ["sbx", "create", "web", "--ports", "private", "--port", "8000=public", "--port-host", "localhost:{port}"];
    let made = world.json(&[&asked[..], &["--port-host", "3000=app.internal", "-o", "json"]].concat()).await;
    assert_eq!(made["port_rules"], json!({"8000": {"access": "public"}, "3000": {"host": "app.internal"}}));
    let described = world.dorm(&["sbx", "describe", "web"]).await.text();
    assert!(described.contains("private, as localhost:{port}, 3000 as app.internal, 8000 public"), "{described}");
    let update = ["sbx", "update", "web", "--no-port", "3000", "--port", "22=private", "--port-host", "", "-o", "json"];
    let changed = world.json(&update).await;
    assert_eq!(changed["port_rules"], json!({"8000": {"access": "public"}, "22": {"access": "private"}}));
    assert_eq!(changed["port_host"], json!(null));
    world.dorm(&["sbx", "update", "web", "--port", "0=public"]).await.failed(2, "ports are 1 to 65535");
    world.dorm(&["sbx", "update", "web", "--port", "80=open"]).await.failed(2, "not public or private");
}
