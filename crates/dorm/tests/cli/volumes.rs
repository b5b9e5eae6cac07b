//! Volumes, and sandboxes created from a sandbox with a volume.

use crate::world::World;

async fn with_volume() -> World {
    let world = World::new().await;
    assert_eq!(world.dorm(&["volume", "create", "data", "--size", "64M"]).await.code, 0);
    let made = world.dorm(&["sbx", "create", "web", "--volume", "data:/data"]).await;
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo 1 > /data/file"]).await.code, 0);
    world
}

#[tokio::test]
async fn a_clone_has_volumes_as_it_is_asked_and_is_refused_before_anything_is_done() {
    let world = with_volume().await;
    let refused = world.dorm(&["sbx", "clone", "web", "--name", "twin"]).await;
    refused.failed(4, "'data'");
    refused.failed(4, "--volumes read-only");
    assert_eq!(world.table(&["sbx", "checkpoint", "ls"]).await.len(), 1, "no snapshot is taken for it");
    for (how, code) in [("read-only", 0), ("none", 1)] {
        let name = format!("twin-{how}");
        let cloned = world.dorm(&["sbx", "clone", "web", "--name", &name, "--volumes", how]).await;
        assert_eq!(cloned.code, 0, "{cloned:?}");
        let read = world.dorm(&["sbx", "exec", &name, "--", "cat", "/data/file"]).await;
        assert_eq!(read.code, code, "{read:?}");
        assert_ne!(world.dorm(&["sbx", "exec", &name, "--", "rm", "/data/file"]).await.code, 0);
    }
    // A suspended sandbox has no lease.
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "clone", "web", "--name", "same", "--volumes", "same"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "exec", "same", "--", "rm", "/data/file"]).await.code, 0);
}
