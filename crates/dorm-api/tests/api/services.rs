//! Services, over a fake engine.

use serde_json::{Value, json};

use crate::world::{World, eventually};

#[tokio::test]
async fn a_service_is_started_again_stopped_and_removed() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let services = format!("/v1/sandboxes/{id}/services");
    let asked = json!({
        "name": "web", "argv": ["sleep", "1000000"], "restart": "always", "restart_delay_secs": 0.001,
        "health": {"port": 8000, "path": "/health", "grace_secs": 100.0},
    });
    let started = world.post(&services, asked.clone()).await;
    assert_eq!(
        (&started["state"], &started["health"], &started["restarts"]),
        (&json!("running"), &json!("starting"), &json!(0))
    );
    let check = json!({
        "port": 8000, "path": "/health", "interval_secs": 10.0, "timeout_secs": 5.0, "failures": 3, "grace_secs": 100.0,
    });
    assert_eq!((&started["check"], &started["max_restarts"]), (&check, &json!(10)));
    let (status, active) = world.call("POST", &services, asked).await;
    assert_eq!((status, &active["code"]), (409, &json!("conflict")), "{active}");
    let web = format!("{services}/web");
    let process = started["process"].clone();
    let listed = world.get(&format!("/v1/sandboxes/{id}/processes?label=service:web")).await;
    assert_eq!(listed["processes"][0]["process"], process);
    world.post(&format!("/v1/sandboxes/{id}/processes/{process}/kill"), Value::Null).await;
    eventually("it is started again", async || world.get(&web).await["restarts"] == 1).await;
    let stopped = world.post(&format!("{web}/stop"), json!({"grace_secs": 0})).await;
    assert_eq!((&stopped["state"], &stopped["last_exit"]["signal"]), (&json!("stopped"), &json!(15)), "{stopped}");
    let events = world.get(&format!("{web}/events")).await;
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["started", "exited", "restarting", "started", "exited", "stopped"]);
    let rest = world.get(&format!("{web}/events?after=4&limit=1")).await;
    assert_eq!((&rest["events"][0]["number"], &rest["next"], &rest["more"]), (&json!(5), &json!("5"), &json!(true)));
    assert_eq!(world.call("DELETE", &web, Value::Null).await.0, 204);
    assert_eq!(world.call("GET", &web, Value::Null).await.0, 404);
    assert_eq!(world.get(&services).await, json!({"services": []}));
}

#[tokio::test]
async fn the_output_of_a_service_is_that_of_all_its_processes() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let services = format!("/v1/sandboxes/{id}/services");
    let asked = json!({
        "name": "fails", "shell": "echo run; exit 3", "max_restarts": 2, "restart_delay_secs": 0.001,
    });
    world.post(&services, asked).await;
    let fails = format!("{services}/fails");
    let events = world.events(&format!("{fails}/output")).await.rest().await;
    let output: String = events.iter().filter_map(|event| event.data["data"].as_str()).collect();
    assert_eq!(output, "run\nrun\nrun\n");
    let last = events.last().unwrap();
    assert_eq!((last.kind.as_str(), &last.data["exit_code"]), ("exit", &json!(3)));
    let status = world.get(&fails).await;
    assert_eq!((&status["state"], &status["restarts"]), (&json!("failed"), &json!(2)), "{status}");
    let now = world.events(&format!("{fails}/output?follow=false&stdout=4")).await.rest().await;
    assert_eq!(now.iter().filter_map(|event| event.data["data"].as_str()).collect::<String>(), "run\nrun\n");
    // One that is over is replaced.
    let again = world.post(&services, json!({"name": "fails", "argv": ["echo"], "restart": "never"})).await;
    assert_eq!(again["restarts"], 0);
    eventually("it has finished", async || world.get(&fails).await["state"] == "finished").await;
}

#[tokio::test]
async fn a_service_with_impossible_settings_is_refused() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let services = format!("/v1/sandboxes/{id}/services");
    for (change, message) in [
        (json!({"name": "a/b"}), "name of a service"),
        (json!({"name": ""}), "name of a service"),
        (json!({"argv": []}), "argv"),
        (json!({"argv": ["nonsense"]}), "nonsense"),
        (json!({"restart": "sometimes"}), "on_failure"),
        (json!({"restart_delay_secs": 0}), "restart_delay_secs is 0"),
        (json!({"restart_window_secs": 1e9}), "restart_window_secs"),
        (json!({"health": {"port": 1, "timeout_secs": 61}}), "health.timeout_secs is 61"),
        (json!({"health": {"port": 70000}}), "70000"),
        (json!({"health": {"path": "/"}}), "port"),
    ] {
        let mut asked = json!({"name": "web", "argv": ["sleep", "1"]});
        asked.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let (status, refused) = world.call("POST", &services, asked).await;
        assert_eq!(status, 400, "{change}: {refused}");
        assert!(refused["detail"].as_str().unwrap().contains(message), "{change}: {refused}");
    }
    assert_eq!(world.get(&services).await, json!({"services": []}));
    for (method, path) in
        [("GET", "web"), ("DELETE", "web"), ("POST", "web/stop"), ("GET", "web/output"), ("GET", "web/events")]
    {
        assert_eq!(world.call(method, &format!("{services}/{path}"), Value::Null).await.0, 404, "{method} {path}");
    }
}

#[tokio::test]
async fn a_service_sleeps_with_its_sandbox_and_is_copied_by_a_fork() {
    let world = World::new().await;
    let id = world.named("web").await;
    let sandbox = format!("/v1/sandboxes/{id}");
    let asked = json!({"name": "web", "argv": ["sleep", "1000000"], "restart": "always"});
    let process = world.post(&format!("{sandbox}/services"), asked).await["process"].clone();
    world.post(&format!("{sandbox}/suspend"), json!({})).await;
    world.post(&format!("{sandbox}/resume"), json!({})).await;
    let forked = world.post(&format!("{sandbox}/fork"), json!({"count": 1})).await;
    let child = forked["children"][0]["sandbox"]["id"].as_str().unwrap();
    for id in [id.as_str(), child] {
        let service = world.get(&format!("/v1/sandboxes/{id}/services/web")).await;
        let seen = (&service["process"], &service["restarts"], &service["state"]);
        assert_eq!(seen, (&process, &json!(0), &json!("running")), "{service}");
    }
}
