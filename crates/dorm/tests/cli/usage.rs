//! `dorm sbx usage`.

use crate::world::World;

#[tokio::test]
async fn what_it_uses_is_told() {
    let world = World::new().await;
    world.named("web").await;
    let rows = world.table(&["sbx", "usage", "web"]).await;
    assert_eq!(rows[0], ["CPU TIME", "MEMORY", "HOST PROCESSES"]);
    assert_eq!(rows[1].len(), 3);
    let usage = world.json(&["sbx", "usage", "web", "-o", "json"]).await;
    assert!(usage["cpu_secs"].is_number() && usage["memory_bytes"].is_number(), "{usage}");
    world.dorm(&["sbx", "usage", "nobody"]).await.failed(3, "there is no sandbox 'nobody'");
}
