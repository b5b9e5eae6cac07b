//! `dorm sbx suspend`, `resume` and `evict`.

use crate::world::World;

#[tokio::test]
async fn a_suspended_sandbox_says_where_its_memory_is() {
    let world = World::new().await;
    world.named("web").await;
    let state = async |arguments: &[&str]| {
        let rows = world.table(arguments).await;
        (rows[1][2].clone(), rows[1][3].clone())
    };
    let is = |state: &str, generation: &str| (state.to_owned(), generation.to_owned());
    assert_eq!(state(&["sbx", "suspend", "web"]).await, is("suspended (parked)", "1"));
    let resumed = state(&["sbx", "resume", "web"]).await;
    assert_eq!(resumed.0, "running");
    assert_eq!(state(&["sbx", "suspend", "web", "--evict"]).await.0, "suspended (evicted)");
    assert_eq!(state(&["sbx", "resume", "web"]).await.0, "running");
    assert_eq!(state(&["sbx", "suspend", "web"]).await.0, "suspended (parked)");
    assert_eq!(state(&["sbx", "evict", "web"]).await.0, "suspended (evicted)");
    let sandbox = world.json(&["sbx", "describe", "web", "-o", "json"]).await;
    assert!(sandbox["sleep_image"]["bytes"].as_u64().unwrap() > 0, "{sandbox}");
}

#[tokio::test]
async fn an_ephemeral_one_cannot_be_suspended() {
    let world = World::new().await;
    let id = world.json(&["sbx", "create", "-o", "json"]).await["id"].as_str().unwrap().to_owned();
    let ran = world.dorm(&["sbx", "suspend", &id]).await;
    ran.failed(4, "error: cannot suspend sandbox");
    assert!(ran.stderr.contains("\n  next: "), "{ran:?}");
    assert_eq!(world.json(&["sbx", "describe", &id, "-o", "json"]).await["state"], "running");
}

#[tokio::test]
async fn one_that_is_over_cannot_be_woken() {
    let world = World::new().await;
    let id = world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "terminate", "web"]).await.code, 0);
    world.dorm(&["sbx", "resume", &id]).await.failed(4, &id);
    world.dorm(&["sbx", "suspend", &id]).await.failed(4, &id);
    world.dorm(&["sbx", "resume", "web"]).await.failed(3, "there is no sandbox 'web'");
}

#[tokio::test]
async fn memory_continues_where_it_was() {
    let world = World::new().await;
    world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo kept > /tmp/note"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "suspend", "web", "--evict"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "resume", "web"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "cat", "/tmp/note"]).await.text(), "kept\n");
}
