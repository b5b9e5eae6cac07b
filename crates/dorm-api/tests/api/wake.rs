//! Calls that wake suspended sandboxes.

use dorm_service::{Budgets, Settings};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, eventually, read};

async fn exec(world: &World, sandbox: &str, wake: Option<&str>) -> (u16, Value) {
    let request = world.request("POST", &format!("/v1/sandboxes/{sandbox}/exec"));
    let request = wake.iter().fold(request, |request, wake| request.header("x-dormouse-wake", *wake));
    read(request.json(&json!({"argv": ["echo", "hello"]})).send().await.unwrap()).await
}

async fn suspended(world: &World, body: Value) -> String {
    let id = world.create(body).await;
    world.post(&format!("/v1/sandboxes/{id}/suspend"), Value::Null).await;
    id
}

#[tokio::test]
async fn a_hundred_callers_of_every_kind_cause_one_resume_and_are_all_answered() {
    let world = World::new().await;
    let id = world.create(json!({"image": "base", "name": "web", "wake": "any"})).await;
    world.start(&id, json!({"argv": ["serve", "8080"]})).await;
    let written = world.request("PUT", "/v1/sandboxes/web/files?path=/etc/motd").body("welcome").send().await.unwrap();
    assert!(written.status().is_success());
    let host = format!("8080-{id}.localhost");
    let visit = async || {
        let request = world.request("GET", "/").header("host", &host);
        read(request.send().await.unwrap()).await
    };
    eventually("it listens", async || visit().await.0 == 200).await;
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    world.post("/v1/sandboxes/web/evict", Value::Null).await;
    let call = async |number: usize| match number % 5 {
        0 => {
            let (status, answer) = exec(&world, "web", None).await;
            (status, answer["stdout"] == "hello\n")
        }
        1 => {
            let answer = world.request("GET", "/v1/sandboxes/web/files?path=/etc/motd").send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap() == "welcome")
        }
        2 => {
            let (status, answer) = visit().await;
            (status, answer == dorm_engine_fake::SERVED)
        }
        3 => {
            let (status, answer) = world.call("GET", "/v1/sandboxes/web/processes", Value::Null).await;
            (status, !answer["processes"].as_array().unwrap().is_empty())
        }
        _ => {
            let body = json!({"argv": ["echo", "x"]});
            let (status, answer) = world.call("POST", "/v1/sandboxes/web/processes", body).await;
            (status, answer["process"].is_u64())
        }
    };
    let answers = join_all((0..100).map(call)).await;
    assert!(answers.iter().all(|(status, right)| (200..300).contains(status) && *right), "{answers:?}");
    assert_eq!(world.get("/v1/sandboxes/web").await["generation"], 2);
    let events = world.get("/v1/events?sandbox=web").await;
    let resumed = events["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "resumed").count();
    assert_eq!(resumed, 1);
}

#[tokio::test]
async fn the_policy_of_the_sandbox_decides_and_the_caller_can_decide_otherwise() {
    let world = World::new().await;
    for (policy, header, wakes) in [
        ("never", None, false),
        ("traffic", None, false),
        ("any", None, true),
        ("never", Some("any"), true),
        ("traffic", Some("any"), true),
        ("any", Some("never"), false),
    ] {
        let id = suspended(&world, json!({"image": "base", "name": "web", "wake": policy})).await;
        let (status, answer) = exec(&world, &id, header).await;
        assert_eq!(status, if wakes { 200 } else { 409 }, "{policy} {header:?}: {answer}");
        let state = world.get("/v1/sandboxes/web").await["state"].clone();
        assert_eq!(state, if wakes { "running" } else { "suspended" }, "{policy} {header:?}");
        world.post("/v1/sandboxes/web/terminate", Value::Null).await;
    }
}

#[tokio::test]
async fn a_call_waits_out_a_suspend_in_progress() {
    let world = World::new().await;
    world.create(json!({"image": "base", "name": "tired", "wake": "any"})).await;
    let suspend = world.call("POST", "/v1/sandboxes/tired/suspend", Value::Null);
    let calls = join_all((0..8).map(|_| exec(&world, "tired", None)));
    let ((status, _), answers) = futures_util::future::join(suspend, calls).await;
    assert_eq!(status, 200);
    assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
}

#[tokio::test]
async fn a_header_without_meaning_is_refused() {
    let world = World::new().await;
    let id = suspended(&world, json!({"image": "base", "name": "web"})).await;
    for (method, path, word) in [
        ("POST", format!("/v1/sandboxes/{id}/resume"), "any"),
        ("GET", format!("/v1/sandboxes/{id}"), "any"),
        ("GET", format!("/v1/sandboxes/{id}/files?path=/etc/hello"), "traffic"),
        ("GET", format!("/v1/sandboxes/{id}/files?path=/etc/hello"), ""),
    ] {
        let request = world.request(method, &path).header("x-dormouse-wake", word);
        let (status, answer) = read(request.send().await.unwrap()).await;
        assert_eq!((status, &answer["code"]), (400, &json!("invalid_argument")), "{method} {path}: {answer}");
    }
    let visit = world.request("GET", "/").header("host", format!("80-{id}.localhost")).header("x-dormouse-wake", "any");
    assert_eq!(read(visit.send().await.unwrap()).await.0, 400, "traffic needs no key");
    assert_eq!(world.get("/v1/sandboxes/web").await["state"], "suspended");
}

#[tokio::test]
async fn traffic_can_ask_not_to_wake() {
    let world = World::new().await;
    let id = suspended(&world, json!({"image": "base", "name": "web"})).await;
    let visit =
        world.request("GET", "/").header("host", format!("80-{id}.localhost")).header("x-dormouse-wake", "never");
    assert_eq!(read(visit.send().await.unwrap()).await.0, 409);
    assert_eq!(world.get("/v1/sandboxes/web").await["state"], "suspended");
}

#[tokio::test]
async fn a_read_only_key_wakes_nothing() {
    let world = World::new().await;
    let id = suspended(&world, json!({"image": "base", "name": "web", "wake": "any"})).await;
    let key = world.post("/v1/keys", json!({"scope": "read_only"})).await["key"].as_str().unwrap().to_owned();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/v1/sandboxes/{id}/files?path=/etc/hello", world.address);
    let asked = || client.get(&url).header("x-api-key", &key).timeout(PATIENCE);
    assert_eq!(asked().send().await.unwrap().status(), 409);
    let never = asked().header("x-dormouse-wake", "never").send().await.unwrap();
    assert_eq!(never.status(), 409);
    // Nor may it say so for one request.
    let (status, refused) = read(asked().header("x-dormouse-wake", "any").send().await.unwrap()).await;
    assert_eq!((status, &refused["code"]), (403, &json!("forbidden")), "{refused}");
    assert_eq!(world.get("/v1/sandboxes/web").await["state"], "suspended");
}

#[tokio::test]
async fn a_request_without_a_key_may_have_conditions_that_do_not_concern_it() {
    let world = World::new().await;
    let asked = |name: &str, value: &str| world.request("GET", "/v1/health").header(name, value).send();
    assert_eq!(asked("idempotency-key", "one").await.unwrap().status(), 200);
    for (name, value) in [("if-match", "\"1\""), ("x-dormouse-wake", "any")] {
        let (status, refused) = read(asked(name, value).await.unwrap()).await;
        assert_eq!((status, &refused["code"]), (400, &json!("invalid_argument")), "{name}: {refused}");
    }
}

#[tokio::test]
async fn a_wake_storm_with_little_room_is_served_in_turn_and_none_is_lost() {
    const MEMORY: u64 = 64 << 20;
    let budgets = Budgets { memory_bytes: Some(10 * MEMORY), ..Budgets::default() };
    let world = World::with_settings(Settings { budgets, ..Settings::default() }).await;
    let resources = json!({"memory_bytes": MEMORY});
    for number in 0..100 {
        let asked = json!({"image": "base", "name": format!("s{number}"), "wake": "any", "resources": resources});
        suspended(&world, asked).await;
    }
    let use_and_leave = async |number: usize| {
        let (status, answer) = exec(&world, &format!("s{number}"), None).await;
        assert_eq!((status, &answer["stdout"]), (200, &json!("hello\n")), "s{number}: {answer}");
        world.post(&format!("/v1/sandboxes/s{number}/suspend"), Value::Null).await;
    };
    join_all((0..100).map(use_and_leave)).await;
    let list = world.get("/v1/sandboxes?limit=1000").await;
    let states = list["sandboxes"].as_array().unwrap();
    assert_eq!(states.len(), 100);
    assert!(states.iter().all(|sandbox| sandbox["state"] == "suspended" && sandbox["generation"] == 2));
}

#[tokio::test]
async fn a_create_waits_for_room_as_long_as_it_asks() {
    const MEMORY: u64 = 64 << 20;
    let budgets = Budgets { memory_bytes: Some(MEMORY), ..Budgets::default() };
    let world = World::with_settings(Settings { budgets, ..Settings::default() }).await;
    let resources = json!({"memory_bytes": MEMORY});
    let create = async |name: &str, wait: Option<f64>| {
        let asked = json!({"image": "base", "name": name, "resources": resources, "max_wait_secs": wait});
        world.call("POST", "/v1/sandboxes", asked).await
    };
    assert_eq!(create("first", None).await.0, 201);
    for wait in [None, Some(0.0), Some(0.01)] {
        let (status, answer) = create("late", wait).await;
        assert_eq!((status, &answer["code"]), (507, &json!("no_room")), "{wait:?}: {answer}");
    }
    let make_room = async {
        tokio::task::yield_now().await;
        world.post("/v1/sandboxes/first/terminate", Value::Null).await
    };
    let (created, _) = futures_util::future::join(create("second", Some(60.0)), make_room).await;
    assert_eq!(created.0, 201, "{}", created.1);
    world.post("/v1/sandboxes/second/suspend", Value::Null).await;
    assert_eq!(create("third", None).await.0, 201);
    let (status, answer) = world.call("POST", "/v1/sandboxes/second/resume", json!({})).await;
    assert_eq!(status, 507, "{answer}");
    let resume = world.call("POST", "/v1/sandboxes/second/resume", json!({"max_wait_secs": 60.0}));
    let make_room = world.call("POST", "/v1/sandboxes/third/suspend", Value::Null);
    let (resumed, _) = futures_util::future::join(resume, make_room).await;
    assert_eq!(resumed.0, 200, "{}", resumed.1);
}
