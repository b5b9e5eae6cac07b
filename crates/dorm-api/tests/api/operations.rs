use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn operations_are_listed_by_sandbox_and_looked_up_by_the_id_in_events() {
    let world = World::new().await;
    let id = world.named("web").await;
    world.named("other").await;
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    let all = world.get("/v1/operations").await;
    assert_eq!((all["operations"].as_array().unwrap().len(), &all["next"]), (3, &Value::Null), "{all}");
    let of_web = world.get("/v1/operations?sandbox=web").await["operations"].as_array().unwrap().clone();
    let mut kinds: Vec<_> = of_web.iter().map(|operation| operation["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["create", "suspend"]);
    for operation in &of_web {
        assert_eq!((&operation["sandbox"], &operation["status"]), (&json!(id), &json!("completed")), "{operation}");
        assert!(operation["ended_at"].is_string() && operation["code"].is_null(), "{operation}");
    }
    let first = world.get("/v1/operations?sandbox=web&limit=1").await;
    let next = first["next"].as_str().unwrap();
    let rest = world.get(&format!("/v1/operations?sandbox=web&limit=1&after={next}")).await;
    assert_eq!(json!([first["operations"][0], rest["operations"][0]]), json!(of_web));
    assert_eq!(rest["next"], Value::Null);
    let events = world.get(&format!("/v1/events?sandbox={id}")).await;
    let named = events["events"].as_array().unwrap().last().unwrap()["operation"].as_str().unwrap().to_owned();
    let found = world.get(&format!("/v1/operations/{named}")).await;
    assert_eq!((&found["id"], &found["kind"]), (&json!(named), &json!("suspend")));
}

#[tokio::test]
async fn operations_that_do_not_exist_and_queries_that_cannot_be_are_refused() {
    let world = World::new().await;
    for (path, status, code) in [
        ("/v1/operations/abcdefghij2345678901", 404, "not_found"),
        ("/v1/operations/x", 404, "not_found"),
        ("/v1/operations?sandbox=nobody", 404, "not_found"),
        ("/v1/operations?limit=0", 400, "invalid_argument"),
        ("/v1/operations?after=x", 400, "invalid_argument"),
        ("/v1/operations?status=open", 400, "invalid_argument"),
    ] {
        let (seen, answer) = world.call("GET", path, Value::Null).await;
        assert_eq!((seen, &answer["code"]), (status, &json!(code)), "{path}: {answer}");
    }
}
