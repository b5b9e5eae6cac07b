//! `dorm sbx usage`.

use std::time::Duration;

use dorm_service::Settings;

use crate::world::World;

#[tokio::test]
async fn all_that_run_are_shown_beside_their_limits() {
    let world = World::new().await;
    let asked = ["sbx", "create", "web", "--memory", "256M", "--processes", "64", "-o", "json"];
    assert_eq!(world.json(&asked).await["resources"]["processes"], 64);
    world.named("other").await;
    assert_eq!(world.dorm(&["sbx", "suspend", "other"]).await.code, 0);
    let rows = world.table(&["sbx", "top"]).await;
    let titles = ["SANDBOX", "NAME", "CPU", "CPUS", "CPU TIME", "MEMORY", "OF", "DISK", "OF", "HOST PROCESSES"];
    assert_eq!(rows[0], titles);
    assert_eq!((rows.len(), rows[1][1].as_str(), rows[1][6].as_str()), (2, "web", "256 MiB"), "{rows:?}");
    let shown = world.json(&["sbx", "top", "-o", "json"]).await;
    assert_eq!((shown.as_array().map(Vec::len), &shown[0]["name"]), (Some(1), &serde_json::json!("web")), "{shown}");
    assert!(shown[0]["usage"]["memory_bytes"].is_number(), "{shown}");
}

#[tokio::test]
async fn what_it_uses_is_told() {
    let world = World::new().await;
    world.named("web").await;
    let rows = world.table(&["sbx", "usage", "web"]).await;
    assert_eq!(
        rows[0].join(", "),
        "CPU TIME, MEMORY, DISK, HOST PROCESSES, DISK READ, DISK WRITTEN, SENT, RECEIVED, NETWORK LIMIT"
    );
    assert_eq!(rows[1].len(), 9);
    let usage = world.json(&["sbx", "usage", "web", "-o", "json"]).await;
    assert!(usage["cpu_secs"].is_number() && usage["memory_bytes"].is_number(), "{usage}");
    world.dorm(&["sbx", "usage", "nobody"]).await.failed(3, "there is no sandbox 'nobody'");
}

#[tokio::test]
async fn what_it_has_used_is_told_while_it_ran_and_asking_wakes_nobody() {
    let every = Duration::from_millis(5);
    let world = World::with(Settings { usage_every: Some(every), ..Settings::default() }).await;
    world.named("web").await;
    let history = ["sbx", "usage", "web", "--since", "10m"];
    let mut rows = world.table(&history).await;
    while rows.len() < 3 {
        tokio::time::sleep(every).await;
        rows = world.table(&history).await;
    }
    assert_eq!(rows[0].join(", "), "TIME, CPU, CPUS, MEMORY, OF, DISK, SENT, RECEIVED");
    assert_eq!(rows[1].len(), 8);
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    let json = [&history[..], &["-o", "json"]].concat();
    let shown = world.json(&json).await;
    assert_eq!(shown["interval_secs"], 0.005);
    let samples = shown["samples"].as_array().map_or(0, Vec::len);
    assert!(samples >= 2, "{shown}");
    assert!(shown["samples"][1]["cpus"].is_number() && shown["samples"][0]["cpus"].is_null(), "{shown}");
    assert_eq!(world.json(&["sbx", "describe", "web", "-o", "json"]).await["state"], "suspended");
    world.dorm(&["sbx", "usage", "nobody", "--since", "1m"]).await.failed(3, "there is no sandbox 'nobody'");
    assert_eq!(world.dorm(&["sbx", "usage", "web", "--since", "never"]).await.code, 2);
}

#[tokio::test]
async fn a_daemon_that_takes_no_samples_says_so() {
    let world = World::new().await;
    world.named("web").await;
    let shown = world.json(&["sbx", "usage", "web", "--since", "1h", "-o", "json"]).await;
    assert_eq!(shown, serde_json::json!({ "interval_secs": null, "samples": [] }));
}
