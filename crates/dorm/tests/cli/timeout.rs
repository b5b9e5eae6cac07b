//! `dorm sbx timeout`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn limits_are_replaced_together() {
    let world = World::new().await;
    world.named("web").await;
    for (arguments, total, idle) in [
        (&["--timeout", "1h"][..], json!(3600.0), json!(null)),
        (&["--idle-timeout", "30m"], json!(null), json!(1800.0)),
        (&["--timeout", "1h", "--idle-timeout", "5m"], json!(3600.0), json!(300.0)),
        (&["--none"], json!(null), json!(null)),
        (&["--idle-timeout", "30m", "--max-run", "1d"], json!(null), json!(1800.0)),
    ] {
        let sandbox = world.json(&[&["sbx", "timeout", "web", "-o", "json"], arguments].concat()).await;
        assert_eq!((&sandbox["timeout_secs"], &sandbox["idle_timeout_secs"]), (&total, &idle), "{arguments:?}");
        assert_eq!(sandbox["expires_at"].is_null(), total.is_null() && idle.is_null(), "{sandbox}");
    }
}

#[tokio::test]
async fn something_must_be_said() {
    let world = World::new().await;
    world.named("web").await;
    world.dorm(&["sbx", "timeout", "web"]).await.failed(2, "--timeout");
    world.dorm(&["sbx", "timeout", "web", "--none", "--timeout", "5m"]).await.failed(2, "cannot be used with");
    world.dorm(&["sbx", "timeout", "nobody", "--none"]).await.failed(3, "there is no sandbox 'nobody'");
}
