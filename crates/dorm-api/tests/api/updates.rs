//! Changes of the properties of sandboxes, and commands that say whether they changed something.

use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn an_unnamed_sandbox_gets_a_name_and_can_be_suspended_from_then_on() {
    let world = World::new().await;
    let id = world.sandbox().await;
    assert_eq!(world.call("POST", &format!("/v1/sandboxes/{id}/suspend"), Value::Null).await.0, 409);
    let named = world.ok("PATCH", &format!("/v1/sandboxes/{id}"), json!({"name": "web"})).await;
    assert_eq!((&named["name"], &named["suspendable"], &named["changed"]), (&json!("web"), &json!(true), &json!(true)));
    assert_eq!(named["on_timeout"], "terminate", "what happens at its deadline is not changed unasked");
    assert_eq!(world.post("/v1/sandboxes/web/suspend", Value::Null).await["state"], "suspended");
    // Also while it is suspended; the name it had is free then.
    world.ok("PATCH", "/v1/sandboxes/web", json!({"name": "site", "on_timeout": "suspend"})).await;
    assert_eq!(world.call("GET", "/v1/sandboxes/web", Value::Null).await.0, 404);
    assert_eq!(world.post("/v1/sandboxes/site/resume", Value::Null).await["id"], json!(id));
    world.named("web").await;
}

#[tokio::test]
async fn properties_change_together_or_not_at_all() {
    let world = World::new().await;
    world.named("taken").await;
    let id = world.create(json!({"image": "base", "labels": {"a": "1", "b": "2"}})).await;
    let path = format!("/v1/sandboxes/{id}");
    let properties = async || {
        let mut sandbox = world.get(&path).await;
        sandbox["last_active_at"] = Value::Null;
        sandbox
    };
    let before = properties().await;
    for (asked, status) in [
        (json!({"name": "taken", "labels": {"a": "9"}}), 409),
        (json!({"on_timeout": "suspend", "wake": "any"}), 409),
        (json!({"name": "Not A Name"}), 400),
        (json!({"wake": "sometimes"}), 400),
        (json!({"memory_bytes": 1}), 400),
    ] {
        let (found, answer) = world.call("PATCH", &path, asked.clone()).await;
        assert_eq!(found, status, "{asked}: {answer}");
        assert_eq!(properties().await, before, "{asked}");
    }
    let asked = json!({"wake": "any", "port_access": "private", "labels": {"a": null, "c": "3", "d": null}});
    let after = world.ok("PATCH", &path, asked.clone()).await;
    assert_eq!((&after["wake"], &after["port_access"]), (&json!("any"), &json!("private")));
    assert_eq!((&after["labels"], &after["changed"]), (&json!({"b": "2", "c": "3"}), &json!(true)));
    let again = world.ok("PATCH", &path, asked).await;
    assert_eq!((&again["changed"], &again["revision"]), (&json!(false), &after["revision"]));
    let found = world.get("/v1/sandboxes?label=c=3").await;
    assert_eq!(found["sandboxes"][0]["id"], json!(id));
    let events = world.get(&format!("/v1/events?sandbox={id}")).await;
    let updated: Vec<_> =
        events["events"].as_array().unwrap().iter().filter(|event| event["kind"] == "updated").collect();
    assert_eq!((updated.len(), &updated[0]["detail"]), (1, &json!("wake, port_access, labels")));
    world.post(&format!("{path}/terminate"), Value::Null).await;
    assert_eq!(world.call("PATCH", &path, json!({"wake": "never"})).await.0, 410);
}

#[tokio::test]
async fn an_update_honours_if_match() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let update = async |tag: &str| {
        let request = world.request("PATCH", &format!("/v1/sandboxes/{id}")).header("if-match", tag);
        request.json(&json!({"name": "web"})).send().await.unwrap().status().as_u16()
    };
    assert_eq!(update("\"999\"").await, 412);
    let revision = world.get(&format!("/v1/sandboxes/{id}")).await["revision"].as_u64().unwrap();
    assert_eq!(update(&format!("\"{revision}\"")).await, 200);
}

#[tokio::test]
async fn a_command_tells_whether_it_changed_something() {
    let world = World::new().await;
    world.named("web").await;
    for (verb, expected) in [
        ("resume", false),
        ("suspend", true),
        ("suspend", false),
        ("resume", true),
        ("resume", false),
        ("terminate", true),
    ] {
        let answer = world.post(&format!("/v1/sandboxes/web/{verb}"), Value::Null).await;
        assert_eq!(answer["changed"], json!(expected), "{verb}");
    }
    let id = world.named("two").await;
    let verbs = (0..8).map(|_| world.call("POST", "/v1/sandboxes/two/suspend", Value::Null));
    let answers = futures_util::future::join_all(verbs).await;
    assert_eq!(answers.iter().filter(|(_, answer)| answer["changed"] == true).count(), 1, "{answers:?}");
    for expected in [true, false] {
        let answer = world.post(&format!("/v1/sandboxes/{id}/terminate"), Value::Null).await;
        assert_eq!(answer["changed"], json!(expected));
    }
    assert!(world.get(&format!("/v1/sandboxes/{id}")).await.get("changed").is_none(), "a look changes nothing");
}

fn seconds_left(sandbox: &Value) -> f64 {
    let at = sandbox["expires_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    at.duration_since(jiff::Timestamp::now()).as_secs_f64()
}

#[tokio::test]
async fn a_deadline_is_postponed_and_never_brought_forward() {
    let world = World::new().await;
    world.create(json!({"image": "base", "name": "web", "timeout_secs": 1000})).await;
    let extend = async |by: f64| world.post("/v1/sandboxes/web/extend", json!({"timeout_secs": by})).await;
    let shorter = extend(10.0).await;
    assert_eq!(shorter["changed"], false);
    assert!(seconds_left(&shorter) > 900.0);
    let longer = extend(5000.0).await;
    assert_eq!((&longer["changed"], &longer["timeout_secs"]), (&json!(true), &json!(5000.0)));
    assert!((4900.0..=5000.0).contains(&seconds_left(&longer)));
    // A suspended sandbox has no deadline, and its next run gets the longer limit.
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    assert_eq!(
        (extend(6000.0).await["timeout_secs"].clone(), extend(7.0).await["changed"].clone()),
        (json!(6000.0), json!(false))
    );
    assert!(seconds_left(&world.post("/v1/sandboxes/web/resume", Value::Null).await) > 5900.0);
    world.named("endless").await;
    assert_eq!(world.post("/v1/sandboxes/endless/extend", json!({"timeout_secs": 5})).await["changed"], false);
    assert_eq!(world.get("/v1/sandboxes/endless").await["timeout_secs"], Value::Null);
    for by in [json!(0), json!(-1), json!("1h"), Value::Null] {
        assert_eq!(world.call("POST", "/v1/sandboxes/web/extend", json!({"timeout_secs": by})).await.0, 400, "{by}");
    }
}

#[tokio::test]
async fn a_resume_sets_the_limit_of_its_run_and_only_extends_one_in_progress() {
    let world = World::new().await;
    world.create(json!({"image": "base", "name": "web", "timeout_secs": 1000})).await;
    world.post("/v1/sandboxes/web/suspend", Value::Null).await;
    let resume = async |secs: f64| world.post("/v1/sandboxes/web/resume", json!({"timeout_secs": secs})).await;
    let resumed = resume(300.0).await;
    assert!((200.0..=300.0).contains(&seconds_left(&resumed)), "{resumed}");
    assert_eq!(resumed["changed"], true);
    assert_eq!(resume(100.0).await["changed"], false);
    let extended = resume(500.0).await;
    assert!((400.0..=500.0).contains(&seconds_left(&extended)), "{extended}");
    assert_eq!(world.call("POST", "/v1/sandboxes/web/resume", json!({"timeout_secs": 0})).await.0, 400);
}

#[tokio::test]
async fn a_command_is_begun_and_awaited_apart() {
    let world = World::new().await;
    let created = world.ok("POST", "/v1/sandboxes", json!({"image": "base", "name": "web", "wait": false})).await;
    assert_eq!(created["state"], "pending");
    let awaited = async |sandbox: &Value| {
        let id = sandbox["operation"]["id"].as_str().unwrap().to_owned();
        world.get(&format!("/v1/operations/{id}?wait_secs=60")).await["status"].clone()
    };
    assert_eq!(awaited(&created).await, "completed");
    for (verb, during, after) in [
        ("suspend", "suspending", "suspended"),
        ("resume", "resuming", "running"),
        ("terminate", "terminating", "terminated"),
    ] {
        let (status, begun) = world.call("POST", &format!("/v1/sandboxes/web/{verb}"), json!({"wait": false})).await;
        assert_eq!((status, &begun["state"], &begun["changed"]), (202, &json!(during), &json!(true)), "{verb}");
        assert_eq!(awaited(&begun).await, "completed", "{verb}");
        let id = begun["id"].as_str().unwrap();
        assert_eq!(world.get(&format!("/v1/sandboxes/{id}")).await["state"], after);
    }
    // A command with nothing to do has ended.
    let id = created["id"].as_str().unwrap();
    let (status, answer) = world.call("POST", &format!("/v1/sandboxes/{id}/terminate"), json!({"wait": false})).await;
    assert_eq!((status, &answer["changed"]), (200, &json!(false)));
}

#[tokio::test]
async fn a_failure_of_a_command_that_is_not_awaited_is_in_its_operation() {
    use dorm_engine_fake::{Fault, Moment, Operation};
    let world = World::new().await;
    world.named("web").await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Fail);
    let (status, begun) = world.call("POST", "/v1/sandboxes/web/suspend", json!({"wait": false})).await;
    assert_eq!(status, 202);
    let id = begun["operation"]["id"].as_str().unwrap();
    let ended = world.get(&format!("/v1/operations/{id}?wait_secs=60")).await;
    assert_eq!(ended["status"], "failed", "{ended}");
    assert_eq!(world.get("/v1/sandboxes/web").await["state"], "running");
    for wait in ["-1", "x", "1e99"] {
        assert_eq!(world.call("GET", &format!("/v1/operations/{id}?wait_secs={wait}"), Value::Null).await.0, 400);
    }
}

#[tokio::test]
async fn a_command_can_be_refused_instead_of_waiting_for_another() {
    use dorm_engine_fake::{Fault, Moment, Operation};
    let world = World::new().await;
    world.named("web").await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let suspend = world.call("POST", "/v1/sandboxes/web/suspend", Value::Null);
    let meanwhile = async {
        world.host.faults().wait_until_struck(Operation::Save, 1).await;
        for verb in ["suspend", "resume", "terminate"] {
            let (status, answer) =
                world.call("POST", &format!("/v1/sandboxes/web/{verb}"), json!({"if_busy": "refuse"})).await;
            assert_eq!((status, &answer["code"]), (409, &json!("conflict")), "{verb}: {answer}");
            assert!(answer["detail"].as_str().unwrap().contains("it is suspending (operation "), "{answer}");
        }
        world.host.faults().release();
    };
    let ((status, answer), ()) = futures_util::future::join(suspend, meanwhile).await;
    assert_eq!((status, &answer["state"]), (200, &json!("suspended")));
}

#[tokio::test]
async fn limits_change_alone_and_annotations_are_kept_by_program() {
    let world = World::new().await;
    let made = world
        .ok("POST", "/v1/sandboxes", json!({"image": "base", "name": "web", "annotations": {"e2b": {"a": "1"}}}))
        .await;
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let resized = world.ok("PATCH", &path, json!({"resources": {"memory_bytes": 1 << 30}})).await;
    assert_eq!(
        (&resized["resources"]["memory_bytes"], &resized["resources"]["cpu_millis"]),
        (&json!(1 << 30), &json!(1000))
    );
    for asked in [
        json!({"resources": {"cpu_millis": 2000}, "wake": "any"}),
        json!({"resources": {"disk_bytes": 1 << 30}}),
        json!({"resources": {"cpu_millis": 1}}),
        json!({"annotations": {"": {"a": "1"}}}),
        json!({"annotations": {"e2b": {"a": "x".repeat(70_000)}}}),
    ] {
        let (status, answer) = world.call("PATCH", &path, asked).await;
        assert!(status == 422 || status == 400, "{status} {answer}");
    }
    let asked = json!({"annotations": {"e2b": {"a": null, "b": "2"}, "other": {"c": "3"}}});
    let noted = world.ok("PATCH", &path, asked).await;
    assert_eq!(noted["annotations"], json!({"e2b": {"b": "2"}, "other": {"c": "3"}}));
    let clone = world.ok("POST", &format!("{path}/clone"), json!({})).await;
    assert_eq!(clone["sandbox"]["annotations"], noted["annotations"]);
}

#[tokio::test]
async fn a_suspend_tells_what_it_kept() {
    let world = World::new().await;
    world.ok("POST", "/v1/sandboxes", json!({"image": "base", "name": "web", "timeout_after_wake_secs": 60.0})).await;
    let asleep = world.ok("POST", "/v1/sandboxes/web/suspend", json!({"keep": "files"})).await;
    assert_eq!((&asleep["state"], &asleep["sleep_image"]["keeps"]), (&json!("suspended"), &json!("files")));
    let awake = world.ok("POST", "/v1/sandboxes/web/resume", json!({})).await;
    assert_eq!((&awake["restored"], &awake["restored_generation"]), (&json!("files"), &json!(1)));
    assert_eq!(awake["timeout_after_wake_secs"], json!(60.0));
    assert_eq!(awake["last_started_at"], awake["running_since"]);
    let (status, _) = world.call("POST", "/v1/sandboxes/web/suspend", json!({"keep": "all"})).await;
    assert!(status == 422 || status == 400);
}
