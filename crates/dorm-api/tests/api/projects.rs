//! Projects: nothing of one is visible to the keys of another, and each keeps within its budgets.

use serde_json::{Value, json};

use crate::world::{PATIENCE, World, read};

/// A request with the key of a tenant.
async fn with(world: &World, key: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.request(method.parse().unwrap(), format!("http://{}{path}", world.address));
    let request = request.header("x-api-key", key).timeout(PATIENCE);
    let request = if body.is_null() { request } else { request.json(&body) };
    read(request.send().await.unwrap()).await
}

/// Creates a project with a key that permits everything in it.
async fn tenant(world: &World, name: &str, budgets: Value) -> String {
    world.post("/v1/projects", json!({"name": name, "budgets": budgets})).await;
    let request = world.request("POST", "/v1/keys").header("x-dormouse-project", name);
    let (status, made) = read(request.json(&json!({"name": name})).send().await.unwrap()).await;
    assert_eq!((status, &made["project"]), (201, &json!(name)), "{made}");
    made["key"].as_str().unwrap().to_owned()
}

async fn make(world: &World, key: &str, path: &str, body: Value) -> Value {
    let (status, answer) = with(world, key, "POST", path, body).await;
    assert!((200..300).contains(&status), "POST {path}: {status} {answer}");
    answer
}

/// Everything that a project can have, by the placeholder that stands for it in paths.
struct Belongings {
    /// Ids and names, which no other project may see.
    secret: Vec<String>,
    sandbox: String,
    snapshot: String,
    webhook: String,
    key: String,
    operation: String,
    build: String,
}

async fn furnish(world: &World, key: &str, name: &str) -> Belongings {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let sandbox = make(world, key, "/v1/sandboxes", json!({"image": "base", "name": name})).await;
    let id = text(&sandbox["id"]);
    let taken =
        make(world, key, &format!("/v1/sandboxes/{id}/checkpoint"), json!({"name": format!("{name}-snap")})).await;
    make(world, key, &format!("/v1/sandboxes/{id}/suspend"), json!({})).await;
    let volume = make(world, key, "/v1/volumes", json!({"name": format!("{name}-data"), "size_bytes": 1 << 27})).await;
    let webhook = make(world, key, "/v1/webhooks", json!({"url": "http://127.0.0.1:9/hook"})).await;
    let made = make(world, key, "/v1/keys", json!({"name": format!("{name}-key")})).await;
    let template = json!({"name": format!("{name}-template"), "image": "base"});
    let template = make(world, key, "/v1/templates", template).await;
    let asked = json!({"from": "base", "start_command": format!("true {name}"), "tag": format!("{name}-tag")});
    let build = text(&make(world, key, "/v1/builds", asked).await["id"]);
    let (_, ended) = with(world, key, "GET", &format!("/v1/builds/{build}?wait_secs=60"), Value::Null).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let (_, operations) = with(world, key, "GET", "/v1/operations", Value::Null).await;
    let operation = text(&operations["operations"][0]["id"]);
    let (snapshot, webhook, own) = (text(&taken["id"]), text(&webhook["id"]), text(&made["id"]));
    let ids = [&id, &snapshot, &webhook, &own, &operation, &build, &text(&volume["id"]), &text(&template["id"])];
    let image = text(&ended["image"]);
    let names = ["data", "key", "template", "tag", "snap"].map(|what| format!("{name}-{what}"));
    let secret = ids.map(String::clone).into_iter().chain(names).chain([name.to_owned(), image]).collect();
    Belongings { secret, sandbox: id, snapshot, webhook, key: own, operation, build }
}

/// Method and path of every route, with what `theirs` has in the place of each parameter.
async fn routes(world: &World, theirs: &Belongings, sandbox: &str, snapshot: &str) -> Vec<(String, String)> {
    let document = world.get("/v1/openapi.json").await;
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let of = |collection: &str, id: &str| (format!("/{collection}/{{id}}"), format!("/{collection}/{id}"));
        let filled = [
            of("sandboxes", sandbox),
            of("snapshots", snapshot),
            of("webhooks", &theirs.webhook),
            of("keys", &theirs.key),
            of("operations", &theirs.operation),
            ("{volume}".to_owned(), "theirs-data".to_owned()),
            ("{template}".to_owned(), "theirs-template".to_owned()),
            ("/builds/{build}".to_owned(), format!("/builds/{}", theirs.build)),
            ("{project}".to_owned(), "theirs".to_owned()),
            ("{port}".to_owned(), "80".to_owned()),
            ("{reference}".to_owned(), "base".to_owned()),
        ];
        let filled = filled.iter().fold(path.clone(), |path, (what, value)| path.replace(what, value));
        let filled = filled.replace("{process}", "7").replace("{watcher}", "7").replace(['{', '}'], "x");
        routes.extend(item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), filled.clone())));
    }
    assert!(routes.len() > 80, "{}", routes.len());
    routes
}

#[tokio::test]
async fn no_route_shows_or_changes_anything_of_another_project() {
    let world = World::new().await;
    let (ours, theirs) = (tenant(&world, "ours", json!({})).await, tenant(&world, "theirs", json!({})).await);
    let theirs_has = furnish(&world, &theirs, "theirs").await;
    furnish(&world, &ours, "mine").await;
    // The document names no sandbox, and the other calls of this project do not end.
    let left_out = ["/v1/openapi.json", "/v1/health"];
    let by_id = (theirs_has.sandbox.as_str(), theirs_has.snapshot.as_str());
    for (sandbox, snapshot) in [by_id, ("theirs", "theirs-snap")] {
        for (method, path) in routes(&world, &theirs_has, sandbox, snapshot).await {
            if left_out.contains(&path.as_str()) || path.ends_with("/download") {
                continue;
            }
            let body = match (method.as_str(), path.as_str()) {
                ("GET" | "DELETE", _) => Value::Null,
                // Making something takes a body of its own; what it makes is ours.
                ("POST", "/v1/sandboxes" | "/v1/volumes" | "/v1/webhooks" | "/v1/keys" | "/v1/snapshots/import") => {
                    continue;
                }
                _ => json!({}),
            };
            let queried = match path.as_str() {
                "/v1/diff" => format!("{path}?from={}&to={}", theirs_has.snapshot, theirs_has.sandbox),
                "/v1/tree" | "/v1/events" | "/v1/operations" => format!("{path}?sandbox={sandbox}"),
                "/v1/snapshots" => format!("{path}?source={}&name=theirs-snap", theirs_has.sandbox),
                _ => path.clone(),
            };
            for path in [path.clone(), queried] {
                let (status, answer) = with(&world, &ours, &method, &path, body.clone()).await;
                // Whatever the request itself names may come back, as in "there is no sandbox X".
                let text = answer.to_string();
                let shown: Vec<_> = theirs_has.secret.iter().filter(|one| text.contains(one.as_str())).collect();
                let is_success = (200..300).contains(&status);
                let named = |one: &&String| path.contains(one.as_str());
                assert!(shown.iter().all(|one| !is_success && named(one)), "{method} {path}: {status} {answer}");
                let is_of_theirs = path.contains("{") || path.contains(sandbox) || path.contains("theirs");
                let removes_nothing = method == "DELETE" && (path.contains("/keys/") || path.contains("/webhooks/"));
                let is_filter = path.starts_with("/v1/snapshots?");
                if is_of_theirs && !removes_nothing && !is_filter && !path.starts_with("/v1/projects") {
                    assert!(matches!(status, 400 | 404), "{method} {path}: {status} {answer}");
                }
            }
        }
    }
    // Not even that the name is taken can be found out.
    let create = async |name: &str| {
        let (status, mut answer) = with(&world, &ours, "POST", "/v1/sandboxes", json!({"image": name})).await;
        let detail = answer["detail"].as_str().unwrap().replace(name, "NAME");
        answer["detail"] = json!(detail);
        (status, answer)
    };
    let unknown = create("nobodys-snap").await;
    assert_eq!((create("theirs-snap").await, unknown.0), (unknown.clone(), 404));
    make(&world, &ours, "/v1/sandboxes/mine/checkpoint", json!({"name": "theirs-snap"})).await;
    // All of it is still there.
    let (_, sandbox) = with(&world, &theirs, "GET", "/v1/sandboxes/theirs", Value::Null).await;
    assert_eq!((&sandbox["state"], &sandbox["project"]), (&json!("suspended"), &json!("theirs")));
    for path in ["/v1/snapshots", "/v1/volumes", "/v1/webhooks", "/v1/keys"] {
        let (_, list) = with(&world, &theirs, "GET", path, Value::Null).await;
        let least = if path == "/v1/keys" { 2 } else { 1 };
        let (_, items) = list.as_object().unwrap().iter().find(|(_, value)| value.is_array()).unwrap();
        assert_eq!(items.as_array().unwrap().len(), least, "{path}: {list}");
    }
}

#[tokio::test]
async fn names_belong_to_a_project() {
    let world = World::new().await;
    let (ours, theirs) = (tenant(&world, "ours", json!({})).await, tenant(&world, "theirs", json!({})).await);
    let mut ids = Vec::new();
    for key in [&ours, &theirs] {
        ids.push(make(&world, key, "/v1/sandboxes", json!({"image": "base", "name": "web"})).await["id"].clone());
        make(&world, key, "/v1/volumes", json!({"name": "data", "size_bytes": 1 << 27})).await;
    }
    assert_ne!(ids[0], ids[1]);
    let (_, found) = with(&world, &theirs, "GET", "/v1/sandboxes/web", Value::Null).await;
    assert_eq!(found["id"], ids[1]);
    let (status, _) =
        with(&world, &ours, "GET", &format!("/v1/sandboxes/{}", ids[1].as_str().unwrap()), Value::Null).await;
    assert_eq!(status, 404);
    assert_eq!(world.get("/v1/sandboxes").await["sandboxes"], json!([]), "the project local has none of them");
}

#[tokio::test]
async fn only_keys_of_the_daemon_choose_a_project_and_administer() {
    let world = World::new().await;
    let ours = tenant(&world, "ours", json!({})).await;
    tenant(&world, "theirs", json!({})).await;
    let in_project = async |key: &str, project: &str| {
        let request = world.request("GET", "/v1/info").header("x-api-key", key).header("x-dormouse-project", project);
        read(request.send().await.unwrap()).await
    };
    assert_eq!(in_project(crate::world::KEY, "ours").await.1["project"], "ours");
    for project in ["nobody", "Not A Name"] {
        let (status, answer) = in_project(crate::world::KEY, project).await;
        assert_eq!((status, &answer["detail"]), (404, &json!(format!("there is no project '{project}'"))));
    }
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (project, expected) in [("ours", 200), ("theirs", 403), ("local", 403), ("nobody", 403)] {
        let request = client.get(format!("http://{}/v1/info", world.address)).header("x-dormouse-project", project);
        let (status, answer) = read(request.header("x-api-key", &ours).send().await.unwrap()).await;
        assert_eq!(status, expected, "{project}: {answer}");
    }
    for (method, path) in [
        ("GET", "/v1/projects"),
        ("POST", "/v1/projects"),
        ("GET", "/v1/projects/ours"),
        ("DELETE", "/v1/projects/theirs"),
        ("GET", "/v1/gc"),
        ("POST", "/v1/gc"),
        ("GET", "/v1/verify"),
        ("GET", "/v1/quarantine"),
        ("GET", "/metrics"),
        ("POST", "/v1/images/upload"),
        ("POST", "/v1/images/compose"),
    ] {
        let body = if method == "POST" { json!({}) } else { Value::Null };
        let (status, answer) = with(&world, &ours, method, path, body).await;
        assert_eq!((status, &answer["code"]), (403, &json!("forbidden")), "{method} {path}: {answer}");
    }
}

#[tokio::test]
async fn a_project_keeps_within_its_budgets_and_others_are_not_affected() {
    let world = World::new().await;
    let ours = tenant(&world, "ours", json!({"sandboxes": 3, "running": 2})).await;
    let theirs = tenant(&world, "theirs", json!({"memory_bytes": 1 << 30, "disk_bytes": 0})).await;
    let create = async |key: &str, name: &str| {
        with(&world, key, "POST", "/v1/sandboxes", json!({"image": "base", "name": name})).await
    };
    assert_eq!((create(&ours, "a").await.0, create(&ours, "b").await.0), (201, 201));
    let (status, answer) = create(&ours, "c").await;
    assert_eq!((status, &answer["code"]), (507, &json!("no_room")), "{answer}");
    let why = "project 'ours' has a budget of 2 running sandboxes, uses 2, and needs 1";
    assert!(answer["detail"].as_str().unwrap().contains(why), "{answer}");
    // 512 MiB each.
    assert_eq!(
        (create(&theirs, "a").await.0, create(&theirs, "b").await.0, create(&theirs, "c").await.0),
        (201, 201, 507)
    );
    let (status, answer) = with(&world, &theirs, "POST", "/v1/sandboxes/a/checkpoint", json!({"wait": true})).await;
    assert_eq!((status, &answer["code"]), (507, &json!("no_room")), "{answer}");
    // One that is suspended does not run, but exists.
    make(&world, &ours, "/v1/sandboxes/a/suspend", json!({})).await;
    assert_eq!((create(&ours, "c").await.0, create(&ours, "d").await.0), (201, 507));
    assert_eq!(with(&world, &ours, "POST", "/v1/sandboxes/a/resume", json!({})).await.0, 507);
    make(&world, &ours, "/v1/sandboxes/c/terminate", json!({})).await;
    assert_eq!(with(&world, &ours, "POST", "/v1/sandboxes/a/resume", json!({})).await.0, 200);
    let project = world.get("/v1/projects/ours").await;
    assert_eq!((&project["used"]["sandboxes"], &project["used"]["running"]), (&json!(2), &json!(2)), "{project}");
    world.ok("PUT", "/v1/projects/ours/budgets", json!({"running": 5})).await;
    assert_eq!(create(&ours, "d").await.0, 201);
}

#[tokio::test]
async fn a_project_is_removed_when_it_is_empty_and_its_name_is_not_used_again() {
    let world = World::new().await;
    let ours = tenant(&world, "ours", json!({})).await;
    make(&world, &ours, "/v1/sandboxes", json!({"image": "base", "name": "web"})).await;
    make(&world, &ours, "/v1/webhooks", json!({"url": "http://127.0.0.1:9/hook"})).await;
    let (status, answer) = world.call("DELETE", "/v1/projects/ours", Value::Null).await;
    assert_eq!(status, 409);
    assert_eq!(answer["detail"], "cannot remove the project 'ours': it is in use by 1 sandboxes");
    make(&world, &ours, "/v1/sandboxes/web/terminate", json!({})).await;
    for _ in 0..2 {
        assert_eq!(world.call("DELETE", "/v1/projects/ours", Value::Null).await.0, 204);
        assert_eq!(with(&world, &ours, "GET", "/v1/info", Value::Null).await.0, 401, "its keys are revoked");
    }
    assert_eq!(dorm_store::Store::webhooks(&world.store).await.unwrap(), []);
    let (status, answer) = world.call("POST", "/v1/projects", json!({"name": "ours"})).await;
    assert_eq!((status, &answer["code"]), (409, &json!("conflict")), "{answer}");
    let names = |list: Value| -> Vec<Value> {
        list["projects"].as_array().unwrap().iter().map(|project| project["name"].clone()).collect()
    };
    assert_eq!(names(world.get("/v1/projects").await), ["local"]);
    assert_eq!(world.call("DELETE", "/v1/projects/local", Value::Null).await.0, 409);
    assert_eq!(world.call("DELETE", "/v1/projects/nobody", Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_project_that_exists_is_created_again_only_as_it_is() {
    let world = World::new().await;
    let asked = json!({"name": "ours", "budgets": {"running": 2}});
    let first = world.post("/v1/projects", asked.clone()).await;
    assert_eq!(world.post("/v1/projects", asked).await, first);
    for asked in [json!({"name": "ours"}), json!({"name": "local"})] {
        assert_eq!(world.call("POST", "/v1/projects", asked).await.0, 409);
    }
    for asked in [json!({"name": "Not A Name"}), json!({"name": ""}), json!({"name": "a", "budget": {}})] {
        assert_eq!(world.call("POST", "/v1/projects", asked).await.0, 400);
    }
}

#[tokio::test]
async fn a_key_can_have_the_form_that_other_clients_insist_on() {
    let world = World::new().await;
    let made = world.post("/v1/keys", json!({"form": "e2b"})).await;
    let key = made["key"].as_str().unwrap();
    let digits = key.strip_prefix("e2b_").unwrap();
    assert!(digits.len() == 40 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)));
    assert_eq!(with(&world, key, "GET", "/v1/info", Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_private_port_admits_keys_of_its_own_project_alone() {
    let world = World::new().await;
    let (ours, theirs) = (tenant(&world, "ours", json!({})).await, tenant(&world, "theirs", json!({})).await);
    let asked = json!({"image": "base", "name": "web", "port_access": "private"});
    let id = make(&world, &ours, "/v1/sandboxes", asked).await["id"].as_str().unwrap().to_owned();
    let visit = async |key: &str| {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = client.get(format!("http://{}/", world.address)).header("host", format!("80-{id}.localhost"));
        read(request.header("x-api-key", key).timeout(PATIENCE).send().await.unwrap()).await.0
    };
    assert_eq!(visit(&theirs).await, 401);
    // Nothing listens there.
    assert_eq!(visit(&ours).await, visit(crate::world::KEY).await);
    assert_ne!(visit(&ours).await, 401);
}
