//! `dorm sbx hold`, `release` and `retention`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_hold_is_shown_until_it_is_released() {
    let world = World::new().await;
    world.named("web").await;
    let hold = ["sbx", "hold", "web", "--for", "30m", "--reason", "a build", "-o", "json"];
    let made = world.json(&hold).await;
    assert_eq!(made["reason"], "a build");
    let id = made["id"].as_str().unwrap();
    let shown = world.json(&["sbx", "describe", "web", "-o", "json"]).await;
    assert_eq!(shown["holds"], json!([made]));
    let why = world.dorm(&["why", "web"]).await;
    assert!(why.text().contains("it is held awake: a build"), "{}", why.text());
    let renewed = world.json(&[&hold[..], &["--renew", id]].concat()).await;
    assert_eq!(renewed["id"], id);
    let released = world.json(&["sbx", "release", "web", id, "-o", "json"]).await;
    assert_eq!(released["holds"], json!([]));
    assert_eq!(world.dorm(&["sbx", "release", "web", id]).await.code, 0);
}

#[tokio::test]
async fn the_retention_of_sleep_images_can_be_chosen_and_changed() {
    let world = World::new().await;
    let create = ["sbx", "create", "web", "--keep-generations", "3", "--on-unrestorable", "fresh", "-o", "json"];
    let made = world.json(&create).await;
    assert_eq!((&made["keep_generations"], &made["on_unrestorable"]), (&json!(3), &json!("fresh")));
    let kept = world.json(&["sbx", "retention", "web", "--keep-generations", "2", "-o", "json"]).await;
    assert_eq!((&kept["keep_generations"], &kept["on_unrestorable"]), (&json!(2), &json!("fresh")));
    for _ in 0..4 {
        world.json(&["sbx", "suspend", "web", "-o", "json"]).await;
        world.json(&["sbx", "resume", "web", "-o", "json"]).await;
    }
    let shown = world.json(&["sbx", "describe", "web", "-o", "json"]).await;
    assert_eq!((&shown["restored"], &shown["restored_generation"]), (&json!("memory"), &json!(4)));
    let older: Vec<_> = shown["older_images"].as_array().unwrap().iter().map(|image| &image["generation"]).collect();
    assert_eq!(older, [&json!(3)]);
    world.dorm(&["sbx", "retention", "web"]).await.failed(2, "--keep-generations");
    world
        .dorm(&["sbx", "retention", "web", "--keep-generations", "17"])
        .await
        .failed(2, "invalid sandbox settings: keep_generations is 17: it must be between 1 and 16\n");
}
