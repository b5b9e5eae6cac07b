//! Sandbox pools: they keep their numbers, and a claim is a wake with the claimer's settings.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::world::{World, eventually};

async fn pool(world: &World, asked: Value) -> Value {
    world.post("/v1/pools", asked).await
}

/// Waits until a pool has this many members that wait, and no others.
async fn waits(world: &World, name: &str, count: u64) {
    eventually("the pool has its number", async || {
        let list = world.get("/v1/sandboxes?limit=1000").await;
        let unclaimed = list["sandboxes"].as_array().unwrap().iter().filter(|one| one["waits_in_pool"] == true).count();
        world.get(&format!("/v1/pools/{name}")).await["waiting"] == count && unclaimed as u64 == count
    })
    .await;
}

#[tokio::test]
async fn a_claim_is_a_wake_with_the_settings_of_the_claimer() {
    let world = World::new().await;
    let asked = json!({
        "name": "workers", "image": "base", "ready": 2, "env": {"A": "1", "B": "1"}, "labels": {"team": "a"},
        "resources": {"memory_bytes": 1 << 28},
    });
    let made = pool(&world, asked).await;
    waits(&world, "workers", 2).await;
    let claim = json!({
        "name": "web", "env": {"B": "2"}, "labels": {"step": "1"}, "timeout_secs": 3600, "wake": "any",
        "port_access": "private",
    });
    let sandbox = world.post("/v1/pools/workers/claim", claim).await;
    for (field, value) in [
        ("state", json!("running")),
        ("name", json!("web")),
        ("pool", made["id"].clone()),
        ("waits_in_pool", json!(false)),
        ("generation", json!(2)),
        ("labels", json!({"team": "a", "step": "1"})),
        ("on_timeout", json!("suspend")),
        ("timeout_secs", json!(3600.0)),
        ("wake", json!("any")),
        ("port_access", json!("private")),
    ] {
        assert_eq!(sandbox[field], value, "{field}");
    }
    assert_eq!(sandbox["resources"]["memory_bytes"], 1 << 28);
    assert!(!sandbox["expires_at"].is_null());
    let told = world.post("/v1/sandboxes/web/exec", json!({"argv": ["printenv", "A", "B"]})).await;
    assert_eq!(told["exit_code"], 0, "{told}");
    waits(&world, "workers", 2).await;
    assert_eq!(world.get("/v1/pools/workers").await["claimed"], 1);
    let unnamed = world.post("/v1/pools/workers/claim", json!({})).await;
    assert_eq!((&unnamed["name"], &unnamed["on_timeout"]), (&Value::Null, &json!("terminate")));
}

#[tokio::test]
async fn claims_at_once_get_a_sandbox_each_and_the_pool_keeps_its_number() {
    let world = World::new().await;
    pool(&world, json!({"name": "workers", "image": "base", "ready": 8})).await;
    let claim = async |_: usize| world.post("/v1/pools/workers/claim", json!({"max_wait_secs": 100})).await;
    let claimed = join_all((0..40).map(claim)).await;
    let ids: std::collections::BTreeSet<&str> = claimed.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 40);
    waits(&world, "workers", 8).await;
    assert_eq!(world.get("/v1/pools/workers").await["claimed"], 40);
}

#[tokio::test]
async fn a_pool_is_resized_and_removed_and_claimed_sandboxes_stay() {
    let world = World::new().await;
    pool(&world, json!({"name": "workers", "image": "base", "ready": 3, "most": 4})).await;
    waits(&world, "workers", 3).await;
    let kept = world.post("/v1/pools/workers/claim", json!({"name": "kept"})).await["id"].clone();
    waits(&world, "workers", 3).await;
    // Four is the most, so that none is made for this one.
    world.post("/v1/pools/workers/claim", json!({"name": "second"})).await;
    waits(&world, "workers", 2).await;
    world.ok("PUT", "/v1/pools/workers/size", json!({"ready": 1})).await;
    waits(&world, "workers", 1).await;
    world.ok("PUT", "/v1/pools/workers/size", json!({"ready": 0})).await;
    waits(&world, "workers", 0).await;
    let (status, answer) = world.call("POST", "/v1/pools/workers/claim", json!({})).await;
    assert_eq!((status, &answer["code"]), (507, &json!("no_room")), "{answer}");
    world.ok("PUT", "/v1/pools/workers/size", json!({"ready": 2})).await;
    waits(&world, "workers", 2).await;
    assert_eq!(world.call("DELETE", "/v1/pools/workers", Value::Null).await.0, 204);
    assert_eq!(world.call("GET", "/v1/pools/workers", Value::Null).await.0, 404);
    eventually("only the claimed ones are left", async || {
        let list = world.get("/v1/sandboxes").await;
        let living = list["sandboxes"].as_array().unwrap().iter().filter(|one| one["state"] != "terminated").count();
        living == 2 && dorm_store::Store::pools(&world.store).await.unwrap().is_empty()
    })
    .await;
    assert_eq!(world.get("/v1/sandboxes/kept").await["id"], kept);
}

#[tokio::test]
async fn a_pool_that_makes_no_sense_is_refused_by_name() {
    let world = World::new().await;
    pool(&world, json!({"name": "workers", "image": "base", "ready": 0})).await;
    for (asked, status) in [
        (json!({"name": "workers", "image": "base", "ready": 1}), 400),
        (json!({"name": "a", "image": "base", "ready": 5, "most": 4}), 400),
        (json!({"name": "a", "image": "base", "ready": 1001}), 400),
        (json!({"name": "a", "image": "nothing", "ready": 1}), 404),
        (json!({"name": "a", "ready": 1}), 400),
        (json!({"name": "A", "image": "base", "ready": 1}), 400),
        (json!({"name": "a", "snapshot": "abcdefghij2345678901", "ready": 1}), 404),
    ] {
        let (found, answer) = world.call("POST", "/v1/pools", asked.clone()).await;
        assert_eq!(found, status, "{asked}: {answer}");
    }
    for (method, path, body) in [
        ("POST", "/v1/pools/nobody/claim", json!({})),
        ("PUT", "/v1/pools/nobody/size", json!({"ready": 1})),
        ("DELETE", "/v1/pools/nobody", Value::Null),
    ] {
        assert_eq!(world.call(method, path, body).await.0, 404, "{method} {path}");
    }
    assert_eq!(world.get("/v1/pools").await["pools"].as_array().unwrap().len(), 1);
    world.post("/v1/projects", json!({"name": "small", "budgets": {"sandboxes": 2}})).await;
    let request = world.request("POST", "/v1/pools").header("x-dormouse-project", "small");
    let asked = json!({"name": "large", "image": "base", "ready": 3});
    let (status, answer) = crate::world::read(request.json(&asked).send().await.unwrap()).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer["detail"].as_str().unwrap().contains("the budget is 2"), "{answer}");
}

#[tokio::test]
async fn a_claim_that_cannot_be_met_leaves_the_member_in_the_pool() {
    use dorm_engine_fake::{Fault, Moment, Operation};
    let world = World::new().await;
    world.named("taken").await;
    pool(&world, json!({"name": "workers", "image": "base", "ready": 1})).await;
    waits(&world, "workers", 1).await;
    let (status, answer) = world.call("POST", "/v1/pools/workers/claim", json!({"name": "taken"})).await;
    assert_eq!((status, &answer["code"]), (409, &json!("conflict")), "{answer}");
    waits(&world, "workers", 1).await;
    // Members that cannot be made are tried again, and the pool tells why.
    world.host.faults().always(Operation::Start, Moment::Before, Fault::Fail);
    world.post("/v1/pools/workers/claim", json!({})).await;
    eventually("the pool tells its problem", async || !world.get("/v1/pools/workers").await["problem"].is_null()).await;
    world.host.faults().clear();
    waits(&world, "workers", 1).await;
    assert!(world.get("/v1/pools/workers").await["problem"].is_null());
}

#[tokio::test]
async fn a_retry_of_a_claim_gets_the_same_sandbox() {
    let world = World::new().await;
    pool(&world, json!({"name": "workers", "image": "base", "ready": 2})).await;
    waits(&world, "workers", 2).await;
    let claim = async || {
        let request = world.request("POST", "/v1/pools/workers/claim").header("idempotency-key", "one");
        crate::world::read(request.json(&json!({"name": "web"})).send().await.unwrap()).await
    };
    let (first, again) = (claim().await, claim().await);
    assert_eq!((first.0, again.0, &first.1["id"]), (201, 201, &again.1["id"]), "{}", again.1);
}
