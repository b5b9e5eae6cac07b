//! Private ports: the credentials that give access to one, and to no other.

use dorm_engine_fake::SERVED;
use dorm_lifecycle::PortAccess;
use dorm_service::Settings;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::world::{KEY, PATIENCE, World, eventually};

/// A request with only these headers; returns status, headers and text of the response.
async fn visit(world: &World, path: &str, pairs: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let pair =
        |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    let request = client.get(format!("http://{}{path}", world.address)).headers(pairs.iter().map(pair).collect());
    let answer = request.timeout(PATIENCE).send().await.unwrap();
    (answer.status().as_u16(), answer.headers().clone(), answer.text().await.unwrap())
}

/// A private sandbox with a server on its port 8080.
async fn private(world: &World, name: &str) -> String {
    let id = world.create(json!({"image": "base", "name": name, "port_access": "private"})).await;
    world.start(&id, json!({"argv": ["serve", "8080"]})).await;
    let host = format!("8080-{id}.localhost");
    eventually("it listens", async || visit(world, "/", &[("host", &host), ("x-api-key", KEY)]).await.0 == 200).await;
    id
}

#[tokio::test]
async fn a_private_port_opens_for_a_key_or_its_token_alone() {
    let world = World::new().await;
    let (id, other) = (private(&world, "web").await, private(&world, "other").await);
    let made = async |asked: Value| world.post("/v1/keys", asked).await["key"].as_str().unwrap().to_owned();
    let own = made(json!({"scope": "sandbox", "sandbox": "web"})).await;
    let stranger = made(json!({"scope": "sandbox", "sandbox": "other"})).await;
    let reads = made(json!({"scope": "read_only"})).await;
    let token = async |id: &str| {
        world.get(&format!("/v1/sandboxes/{id}/ports/8080")).await["token"].as_str().unwrap().to_owned()
    };
    let (token, others) = (token(&id).await, token(&other).await);
    let host = format!("8080-{id}.localhost");
    for (pairs, status) in [
        (vec![], 401),
        (vec![("x-api-key", KEY)], 200),
        (vec![("x-api-key", own.as_str())], 200),
        (vec![("x-api-key", stranger.as_str())], 401),
        (vec![("x-api-key", reads.as_str())], 401),
        (vec![("x-dormouse-token", token.as_str())], 200),
        (vec![("x-dormouse-token", others.as_str())], 401),
        (vec![("x-dormouse-token", "")], 401),
        (vec![("cookie", "dorm_port=99999999999999.AAAA")], 401),
    ] {
        let all: Vec<_> = pairs.iter().copied().chain([("host", host.as_str())]).collect();
        let (found, _, text) = visit(&world, "/", &all).await;
        assert_eq!(found, status, "{pairs:?}: {text}");
        let by_headers = [("x-dormouse-sandbox", id.as_str()), ("x-dormouse-port", "8080")];
        let all: Vec<_> = pairs.iter().copied().chain(by_headers).collect();
        assert_eq!(visit(&world, "/", &all).await.0, status, "by headers, {pairs:?}");
    }
    let fork = world.post(&format!("/v1/sandboxes/{id}/fork"), json!({"count": 1})).await;
    let child = fork["children"][0]["sandbox"]["id"].as_str().unwrap().to_owned();
    let described = world.get(&format!("/v1/sandboxes/{child}/ports/8080")).await;
    assert_eq!(described["access"], "private");
    assert_ne!(described["token"], json!(token), "a fork has a token of its own");
}

#[tokio::test]
async fn a_link_opens_one_port_once_and_leaves_a_cookie_for_it() {
    let world = World::new().await;
    let id = private(&world, "web").await;
    let (host, neighbour) = (format!("8080-{id}.localhost"), format!("9090-{id}.localhost"));
    let link = world.post(&format!("/v1/sandboxes/{id}/ports/8080/link"), json!({})).await;
    let path = link["path"].as_str().unwrap();
    // On the wrong port the link gives no access, and is not used up.
    assert_eq!(visit(&world, path, &[("host", &neighbour)]).await.0, 403);
    let (status, headers, _) = visit(&world, &format!("{path}&to=/a?b=c"), &[("host", &host)]).await;
    assert_eq!((status, headers["location"].to_str().unwrap()), (303, "/a?b=c"));
    let cookie = headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax") && !cookie.contains("Domain"), "{cookie}");
    assert_eq!(visit(&world, path, &[("host", &host)]).await.0, 403, "it opens once");
    let cookie = cookie.split(';').next().unwrap();
    let (status, headers, text) = visit(&world, "/", &[("host", &host), ("cookie", cookie)]).await;
    assert_eq!((status, text.as_str()), (200, SERVED));
    assert_eq!(headers["referrer-policy"], "same-origin");
    for (host, more) in [
        (neighbour.as_str(), ("accept", "*/*")),
        (host.as_str(), ("origin", "http://evil.test")),
        (host.as_str(), ("sec-fetch-site", "cross-site")),
    ] {
        assert_eq!(visit(&world, "/", &[("host", host), ("cookie", cookie), more]).await.0, 401, "{host} {more:?}");
    }
    let forged = cookie.replacen("dorm_port=", "dorm_port=9", 1);
    assert_eq!(visit(&world, "/", &[("host", &host), ("cookie", &forged)]).await.0, 401);
}

#[tokio::test]
async fn a_daemon_can_make_ports_private_unless_told_otherwise() {
    let world = World::with_settings(Settings { port_access: PortAccess::Private, ..Settings::default() }).await;
    let closed = world.sandbox().await;
    let open = world.create(json!({"image": "base", "port_access": "public"})).await;
    for (id, access) in [(&closed, "private"), (&open, "public")] {
        assert_eq!(world.get(&format!("/v1/sandboxes/{id}")).await["port_access"], access);
    }
    assert_eq!(visit(&world, "/", &[("host", &format!("80-{closed}.localhost"))]).await.0, 401);
    assert_eq!(visit(&world, "/", &[("host", &format!("80-{open}.localhost"))]).await.0, 502);
}

#[tokio::test]
async fn a_name_that_a_stranger_has_resolved_to_this_host_is_not_answered_to() {
    let world = World::new().await;
    let id = world.sandbox().await;
    for host in ["evil.test", "localhost.evil.test:7070", &format!("8080-{id}.evil.test")] {
        for path in ["/v1/health", "/v1/info"] {
            let (status, _, text) = visit(&world, path, &[("host", host), ("x-api-key", KEY)]).await;
            assert!(status == 421 && text.contains("wrong_host"), "{host}: {status} {text}");
        }
        let by_headers = [("host", host), ("x-dormouse-sandbox", id.as_str()), ("x-dormouse-port", "8080")];
        assert_eq!(visit(&world, "/", &by_headers).await.0, 421, "{host}");
    }
    assert_eq!(visit(&world, "/v1/health", &[("host", "localhost:7070")]).await.0, 200);
}

#[tokio::test]
async fn one_port_can_be_public_and_all_others_private_and_forks_keep_it() {
    let world = World::new().await;
    let id = private(&world, "web").await;
    world.start(&id, json!({"argv": ["serve", "9090"]})).await;
    let key = [("x-api-key", KEY)];
    let seen = async |id: &str, port: u16, more: &[(&str, &str)]| {
        let host = format!("{port}-{id}.localhost");
        let all: Vec<_> = more.iter().copied().chain([("host", host.as_str())]).collect();
        visit(&world, "/", &all).await.0
    };
    eventually("it listens", async || seen(&id, 9090, &key).await == 200).await;
    let path = format!("/v1/sandboxes/{id}");
    let asked = json!({"port_rules": {"9090": {"access": "public"}}, "port_host": "localhost:{port}"});
    let after = world.ok("PATCH", &path, asked.clone()).await;
    assert_eq!((&after["port_rules"], &after["port_host"]), (&asked["port_rules"], &asked["port_host"]));
    let described = world.get(&format!("{path}/ports/9090")).await;
    assert_eq!((&described["access"], &described["host"]), (&json!("public"), &json!("localhost:9090")));
    assert_eq!((seen(&id, 9090, &[]).await, seen(&id, 8080, &[]).await), (200, 401));
    let fork = world.post(&format!("{path}/fork"), json!({"count": 1})).await;
    let child = fork["children"][0]["sandbox"]["id"].as_str().unwrap().to_owned();
    assert_eq!((seen(&child, 9090, &[]).await, seen(&child, 8080, &[]).await), (200, 401));
    assert_eq!(world.get(&format!("/v1/sandboxes/{child}")).await["port_host"], "localhost:{port}");
    let closed = world.ok("PATCH", &path, json!({"port_rules": {"9090": {}}, "port_host": ""})).await;
    assert_eq!((&closed["port_rules"], &closed["port_host"]), (&json!({}), &Value::Null));
    assert_eq!(seen(&id, 9090, &[]).await, 401);
    assert_eq!(seen(&child, 9090, &[]).await, 200, "the fork has rules of its own");
}

#[tokio::test]
async fn invalid_rules_for_ports_are_refused_and_change_nothing() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let path = format!("/v1/sandboxes/{id}");
    let before = world.get(&path).await["revision"].clone();
    let many: serde_json::Map<_, _> = (1..=65).map(|port| (port.to_string(), json!({"access": "public"}))).collect();
    for (asked, status) in [
        (json!({"port_rules": {"0": {"access": "public"}}}), 400),
        (json!({"port_rules": {"65536": {"access": "public"}}}), 400),
        (json!({"port_rules": {"web": {"access": "public"}}}), 400),
        (json!({"port_rules": {"80": {"access": "open"}}}), 400),
        (json!({"port_rules": {"80": {"host": "a\r\nx: y"}}}), 400),
        (json!({"port_host": "http://localhost"}), 400),
        (json!({"port_rules": many}), 409),
    ] {
        let (found, answer) = world.call("PATCH", &path, asked.clone()).await;
        assert_eq!(found, status, "{asked}: {answer}");
        assert_eq!(world.get(&path).await["revision"], before);
    }
    let asked = json!({"image": "base", "port_rules": {"80": {}}});
    assert_eq!(world.call("POST", "/v1/sandboxes", asked).await.0, 400);
}

#[tokio::test]
async fn a_sandbox_is_reached_by_its_name_with_a_key_of_its_project_alone() {
    let world = World::new().await;
    let id = world.create(json!({"image": "base", "name": "web"})).await;
    world.start(&id, json!({"argv": ["serve", "8080"]})).await;
    let host = format!("8080-{id}.localhost");
    eventually("it listens", async || visit(&world, "/", &[("host", &host)]).await.0 == 200).await;
    world.post("/v1/projects", json!({"name": "theirs"})).await;
    world.named("other").await;
    let made = async |asked: Value| world.post("/v1/keys", asked).await["key"].as_str().unwrap().to_owned();
    let own = made(json!({"scope": "sandbox", "sandbox": "web"})).await;
    let stranger = made(json!({"scope": "sandbox", "sandbox": "other"})).await;
    let reads = made(json!({"scope": "read_only"})).await;
    let request = world.request("POST", "/v1/keys").header("x-dormouse-project", "theirs").json(&json!({}));
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    let theirs = answer["key"].as_str().unwrap().to_owned();
    for (key, status) in [
        (None, 401),
        (Some("wrong"), 401),
        (Some(KEY), 200),
        (Some(own.as_str()), 200),
        (Some(reads.as_str()), 200),
        (Some(stranger.as_str()), 404),
        (Some(theirs.as_str()), 404),
    ] {
        for named in
            [&[("host", "8080-web.localhost")][..], &[("x-dormouse-sandbox", "web"), ("x-dormouse-port", "8080")]]
        {
            let all: Vec<_> = key.map(|key| ("x-api-key", key)).into_iter().chain(named.iter().copied()).collect();
            let (found, _, text) = visit(&world, "/", &all).await;
            assert_eq!(found, status, "{all:?}: {text}");
            assert!(!text.contains(&id), "{text}");
        }
    }
    let unknown = [("x-api-key", stranger.as_str()), ("host", "8080-nobody.localhost")];
    assert_eq!(visit(&world, "/", &unknown).await.0, 404, "the same as for one that exists");
}
