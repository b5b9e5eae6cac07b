//! `dorm sbx update`, `dorm sbx extend`, and waking with `--wake`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn properties_are_changed_and_shown() {
    let world = World::new().await;
    let id = world.json(&["sbx", "create", "--label", "a=1", "-o", "json"]).await["id"].as_str().unwrap().to_owned();
    let changed = [
        &["sbx", "update", &id, "--name", "web", "--wake", "any", "--ports", "private", "--on-timeout", "suspend"][..],
        &["--label", "b=2", "--unlabel", "a", "-o", "json"],
    ];
    let sandbox = world.json(&changed.concat()).await;
    for (field, value) in [
        ("name", json!("web")),
        ("wake", json!("any")),
        ("port_access", json!("private")),
        ("on_timeout", json!("suspend")),
        ("labels", json!({"b": "2"})),
        ("suspendable", json!(true)),
    ] {
        assert_eq!(sandbox[field], value, "{field}");
    }
    world.dorm(&["sbx", "update", "web"]).await.failed(2, "--name");
    world.dorm(&["sbx", "update", "nobody", "--wake", "any"]).await.failed(3, "there is no sandbox 'nobody'");
}

#[tokio::test]
async fn annotations_are_set_and_removed_by_program() {
    let world = World::new().await;
    let create = ["sbx", "create", "web", "--annotation", "e2b/a=1", "--annotation", "e2b/b/c=x=y", "-o", "json"];
    assert_eq!(world.json(&create).await["annotations"], json!({"e2b": {"a": "1", "b/c": "x=y"}}));
    let update = ["sbx", "update", "web", "--annotation", "ci/run=7", "--unannotate", "e2b/a", "-o", "json"];
    assert_eq!(world.json(&update).await["annotations"], json!({"ci": {"run": "7"}, "e2b": {"b/c": "x=y"}}));
    for bad in ["run=7", "/run=7", "ci/=7", "ci/run"] {
        world.dorm(&["sbx", "update", "web", "--annotation", bad]).await.failed(2, "is not PROGRAM/KEY=VALUE");
    }
    world.dorm(&["sbx", "update", "web", "--unannotate", "ci"]).await.failed(2, "is not PROGRAM/KEY");
}

#[tokio::test]
async fn a_deadline_is_postponed() {
    let world = World::new().await;
    world.json(&["sbx", "create", "web", "--timeout", "1h", "-o", "json"]).await;
    let extend = async |by: &str| world.json(&["sbx", "extend", "web", by, "-o", "json"]).await;
    assert_eq!(extend("5m").await["changed"], false);
    assert_eq!(extend("2h").await["timeout_secs"], 7200.0);
    world.json(&["sbx", "suspend", "web", "-o", "json"]).await;
    let resumed = world.json(&["sbx", "resume", "web", "--timeout", "10m", "-o", "json"]).await;
    assert_eq!((&resumed["timeout_secs"], &resumed["changed"]), (&json!(600.0), &json!(true)));
}

#[tokio::test]
async fn commands_and_copies_wake_a_sandbox_if_asked() {
    let world = World::new().await;
    world.named("web").await;
    let file = world.directory.path().join("file");
    std::fs::write(&file, "content").unwrap();
    let (file, inside) = (file.to_str().unwrap(), "web:/file");
    for (arguments, waking) in [
        (
            vec!["sbx", "exec", "web", "--", "echo", "hello"],
            vec!["sbx", "exec", "--wake", "web", "--", "echo", "hello"],
        ),
        (vec!["sbx", "cp", file, inside], vec!["sbx", "cp", "--wake", file, inside]),
        (vec!["sbx", "cp", inside, "-"], vec!["sbx", "cp", "--wake", inside, "-"]),
    ] {
        world.json(&["sbx", "suspend", "web", "-o", "json"]).await;
        let refused = world.dorm(&arguments).await;
        assert!(refused.code != 0 && refused.stderr.contains("is suspended"), "{arguments:?}: {}", refused.stderr);
        assert_eq!(world.dorm(&waking).await.code, 0, "{waking:?}");
        assert_eq!(world.json(&["sbx", "describe", "web", "-o", "json"]).await["state"], "running");
    }
}
