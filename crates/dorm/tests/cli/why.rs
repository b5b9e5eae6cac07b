//! `dorm why`.

use crate::world::World;

#[tokio::test]
async fn it_says_why_what_comes_next_and_what_is_kept() {
    let world = World::new().await;
    assert_eq!(world.dorm(&["sbx", "create", "web", "--idle-timeout", "30m"]).await.code, 0);
    let why = world.json(&["why", "web", "-o", "json"]).await;
    assert!(why["summary"].as_str().unwrap().contains("running"), "{why}");
    let because = why["because"][0]["says"].as_str().unwrap();
    assert!(because.starts_with("it was started, by a caller with the owner's "), "{because}");
    assert_eq!(why["next"][0]["says"], "it is suspended when its idle_timeout passes");
    assert!(why["next"][0]["at"].is_string());
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    let asleep = world.dorm(&["why", "web"]).await;
    for part in ["suspended, by a caller", "it wakes when it is resumed", "image of generation 1"] {
        assert!(asleep.text().contains(part), "{part}: {}", asleep.text());
    }
    assert_eq!(world.dorm(&["sbx", "terminate", "web"]).await.code, 0);
    world.dorm(&["why", "web"]).await.failed(3, "there is no sandbox 'web'");
    let id = why["sandbox"].as_str().unwrap();
    let over = world.dorm(&["why", id]).await;
    assert!(over.text().contains("a caller requested its termination"), "{}", over.text());
}
