//! Keys that were created through the API: the access that each gives, and that it ends when the
//! key is revoked or expires.

use serde_json::{Value, json};

use crate::world::{PATIENCE, World, read};

/// A request with `key` in the place of the owner's.
pub(crate) async fn with(world: &World, key: &str, method: &str, path: &str) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.request(method.parse().unwrap(), format!("http://{}{path}", world.address));
    let request = request.header("x-api-key", key).timeout(PATIENCE);
    let request = if method == "GET" { request } else { request.json(&json!({})) };
    read(request.send().await.unwrap()).await
}

pub(crate) async fn make(world: &World, asked: Value) -> (String, String) {
    let made = world.post("/v1/keys", asked).await;
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

/// Method and path of every route, with `sandbox` for the id of a sandbox and names that do not
/// exist for everything else.
async fn routes(world: &World, sandbox: &str) -> Vec<(String, String, bool)> {
    let document = world.get("/v1/openapi.json").await;
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let is_of_one = path.starts_with("/v1/sandboxes/{id}");
        let filled = path.replace("/sandboxes/{id}", &format!("/sandboxes/{sandbox}")).replace("{port}", "80");
        let filled = filled.replace("{process}", "77").replace(['{', '}'], "x");
        routes
            .extend(item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), filled.clone(), is_of_one)));
    }
    assert!(routes.len() > 70, "{}", routes.len());
    routes
}

#[tokio::test]
async fn a_read_only_key_changes_nothing() {
    let world = World::new().await;
    let id = world.named("web").await;
    let (_, key) = make(&world, json!({"name": "dashboard", "scope": "read_only"})).await;
    for (method, path, _) in routes(&world, &id).await {
        // The events of a watcher are forgotten once they were taken.
        let changes = path.ends_with("/pty") || path.contains("/ports/") || path.contains("/watchers/");
        let is_refused = method != "GET" || changes || path.ends_with("/v1/keys");
        // These do not end, or wait for something that does not exist.
        if !is_refused && (path.ends_with("/watch") || path.ends_with("/wait") || path.ends_with("/output")) {
            continue;
        }
        let (status, answer) = with(&world, &key, &method, &path).await;
        assert_eq!(status == 403, is_refused, "{method} {path}: {status} {answer}");
        assert_ne!(status, 401, "{method} {path}: {answer}");
    }
    assert_eq!(with(&world, &key, "GET", "/v1/sandboxes/web").await.1["state"], "running");
    let (status, answer) = with(&world, &key, "POST", "/v1/sandboxes/web/terminate").await;
    assert_eq!((status, &answer["code"]), (403, &json!("forbidden")));
    assert_eq!(answer["detail"], "this key is read-only");
}

#[tokio::test]
async fn a_key_for_one_sandbox_learns_nothing_of_another() {
    let world = World::new().await;
    let (own, other) = (world.named("mine").await, world.named("theirs").await);
    let (_, key) = make(&world, json!({"scope": "sandbox", "sandbox": "mine"})).await;
    for sandbox in [other.as_str(), "theirs", "abcdefghij2345678901", "nobody"] {
        for (method, path, _) in routes(&world, sandbox).await {
            let (status, answer) = with(&world, &key, &method, &path).await;
            match path.as_str() {
                "/v1/health" => assert_eq!(status, 200),
                _ => {
                    let message = format!("this key gives access to sandbox {own} only");
                    assert_eq!((status, &answer["detail"]), (403, &json!(message)), "{method} {path}");
                }
            }
        }
    }
    assert_eq!(with(&world, &key, "GET", "/v1/sandboxes/mine").await.1["id"], json!(own));
    for verb in ["clone", "fork", "rewind", "restart", "promote", "volumes", "retention", "checkpoints"] {
        let (status, _) = with(&world, &key, "POST", &format!("/v1/sandboxes/{own}/{verb}")).await;
        assert_eq!(status, 403, "{verb}");
    }
    let (status, answer) = with(&world, &key, "POST", &format!("/v1/sandboxes/{own}/suspend")).await;
    assert_eq!((status, &answer["state"]), (200, &json!("suspended")), "{answer}");
    assert_eq!(with(&world, &key, "POST", "/v1/sandboxes/mine/resume").await.0, 200);
    assert_eq!(world.get("/v1/sandboxes/theirs").await["state"], "running");
}

#[tokio::test]
async fn a_key_for_one_sandbox_names_no_snapshot() {
    let world = World::new().await;
    world.named("web").await;
    let (_, key) = make(&world, json!({"scope": "sandbox", "sandbox": "web"})).await;
    let take = async |body: Value| {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.post(format!("http://{}/v1/sandboxes/web/checkpoint", world.address));
        read(request.header("x-api-key", &key).json(&body).send().await.unwrap()).await
    };
    let (status, refused) = take(json!({"name": "app"})).await;
    assert_eq!((status, &refused["code"]), (403, &json!("forbidden")), "{refused}");
    assert_eq!(take(json!({})).await.0, 201);
    let names = |snapshot: &Value| snapshot["name"].clone();
    let list = world.get("/v1/snapshots").await["snapshots"].as_array().unwrap().iter().map(names).collect::<Vec<_>>();
    assert_eq!(list, [Value::Null]);
}

#[tokio::test]
async fn a_key_for_one_sandbox_adds_no_header_rule() {
    let world = World::new().await;
    world.named("web").await;
    let (_, key) = make(&world, json!({"scope": "sandbox", "sandbox": "web"})).await;
    let policy = |host: &str, default: &str| {
        let header = json!({"host": host, "port": 443, "name": "Authorization", "value": "{TOKEN}"});
        json!({"ordered": {"rules": [{"allow": host}], "default": default, "headers": [header]}})
    };
    let set = async |egress: Value| {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.post(format!("http://{}/v1/sandboxes/web/egress", world.address));
        let request = request.header("x-api-key", &key).json(&json!({"egress": egress}));
        read(request.timeout(PATIENCE).send().await.unwrap()).await
    };
    let (status, answer) = set(policy("attacker.test", "public")).await;
    assert_eq!((status, &answer["code"]), (403, &json!("forbidden")), "{answer}");
    assert_eq!(world.get("/v1/sandboxes/web").await["egress"], "public");
    world.post("/v1/sandboxes/web/egress", json!({"egress": policy("api.test", "public")})).await;
    assert_eq!(set(policy("attacker.test", "public")).await.0, 403);
    assert_eq!(set(policy("api.test", "deny")).await.0, 200, "the rest of the policy is its own");
    assert_eq!(set(json!("closed")).await.0, 200);
    assert_eq!(set(policy("api.test", "deny")).await.0, 403, "what it gave up does not come back");
}

#[tokio::test]
async fn a_key_is_shown_once_listed_without_its_text_and_revoked() {
    let world = World::new().await;
    let (id, key) = make(&world, json!({"name": "laptop"})).await;
    assert!(key.starts_with("dorm_") && key.len() == 48, "{key}");
    assert_eq!(with(&world, &key, "GET", "/v1/info").await.0, 200);
    let listed = world.get("/v1/keys").await;
    assert_eq!((&listed["keys"][0]["id"], &listed["keys"][0]["scope"]), (&json!(id), &json!("full")));
    assert!(!listed.to_string().contains(&key[5..]));
    let stored = dorm_store::Store::api_keys(&world.store).await.unwrap();
    assert!(!dorm_store::codec::encode_api_key(&stored[0]).unwrap().contains(&key[5..]), "only its hash is kept");
    for _ in 0..2 {
        assert_eq!(world.call("DELETE", &format!("/v1/keys/{id}"), Value::Null).await.0, 204);
        assert_eq!(with(&world, &key, "GET", "/v1/info").await.0, 401);
    }
    assert_eq!(world.get("/v1/keys").await["keys"], json!([]));
}

#[tokio::test]
async fn a_key_opens_nothing_after_its_time() {
    let world = World::new().await;
    let (_, key) = make(&world, json!({"lifetime_secs": 0.001})).await;
    crate::world::eventually("it has expired", async || with(&world, &key, "GET", "/v1/info").await.0 == 401).await;
    assert_eq!(world.get("/v1/keys").await["keys"].as_array().unwrap().len(), 1, "it is listed until it is revoked");
}

#[tokio::test]
async fn a_key_that_makes_no_sense_is_refused_and_not_made() {
    let world = World::new().await;
    for (asked, status) in [
        (json!({"scope": "sandbox"}), 400),
        (json!({"scope": "full", "sandbox": "web"}), 400),
        (json!({"scope": "sandbox", "sandbox": "nobody"}), 404),
        (json!({"scope": "everything"}), 400),
        (json!({"name": "a".repeat(64)}), 400),
        (json!({"name": "a\nb"}), 400),
        (json!({"lifetime_secs": 0}), 400),
        (json!({"key": "dorm_mine"}), 400),
    ] {
        let (found, answer) = world.call("POST", "/v1/keys", asked.clone()).await;
        assert_eq!(found, status, "{asked}: {answer}");
    }
    assert_eq!(world.get("/v1/keys").await["keys"], json!([]));
    assert_eq!(world.call("DELETE", "/v1/keys/x", Value::Null).await.0, 400);
}
