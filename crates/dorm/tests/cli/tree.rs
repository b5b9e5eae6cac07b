//! `dorm sbx tree`.

use crate::world::{World, eventually};

#[tokio::test]
async fn the_tree_tells_who_comes_from_whom_also_through_what_is_gone() {
    let world = World::new().await;
    let source = world.named("web").await;
    world.named("other").await;
    let cloned = world.json(&["sbx", "clone", "web", "--name", "twin", "-o", "json"]).await;
    let snapshot = cloned["snapshot"]["id"].as_str().unwrap().to_owned();
    assert_eq!(world.dorm(&["sbx", "fork", "web", "-n", "2", "--name", "worker", "--label", "a=b"]).await.code, 0);
    eventually("the fork's snapshot is gone", || async {
        world.json(&["sbx", "checkpoint", "ls", "-o", "json"]).await.as_array().unwrap().len() == 1
    })
    .await;
    let drawn = world.dorm(&["sbx", "tree", "worker-2"]).await.text();
    let lines: Vec<_> = drawn.lines().collect();
    assert_eq!(lines.len(), 6, "{drawn}");
    assert!(lines[0].starts_with(&format!("sandbox {source}  web  running  generation 1  ")), "{drawn}");
    assert!(lines[1].starts_with(&format!("├─ snapshot {snapshot}  completed  generation 1  ")), "{drawn}");
    assert!(lines[2].starts_with("│  └─ sandbox ") && lines[2].contains("  twin  "), "{drawn}");
    assert!(lines[3].starts_with("└─ snapshot ") && lines[3].contains("  (deleted)  generation 1  "), "{drawn}");
    assert!(lines[4].starts_with("   ├─ sandbox ") && lines[5].starts_with("   └─ sandbox "), "{drawn}");
    assert!(lines[4].ends_with("  a=b"), "{drawn}");
    let tree = world.json(&["sbx", "tree", "web", "-o", "json"]).await;
    assert_eq!(tree.as_array().unwrap().len(), 1);
    assert_eq!(tree[0]["children"][0]["children"][0]["name"], "twin");
    assert_eq!(tree[0]["children"][1]["state"], "deleted");

    assert_eq!(world.dorm(&["sbx", "terminate", "other", "twin", "web"]).await.code, 0);
    let drawn = world.dorm(&["sbx", "tree"]).await.text();
    assert!(drawn.contains("  web  terminated  ") && !drawn.contains("  other  "), "{drawn}");
    assert!(world.dorm(&["sbx", "tree", "--all"]).await.text().contains("  other  terminated  "));
    world.dorm(&["sbx", "tree", "nobody"]).await.failed(3, "nobody");
}
