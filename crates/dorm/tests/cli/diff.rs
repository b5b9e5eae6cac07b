//! `dorm sbx diff`, and rewinds to a filesystem snapshot.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn what_differs_is_shown_and_a_rewind_to_files_takes_it_away() {
    let world = World::new().await;
    world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo one > /root/note"]).await.code, 0);
    let snapshot = world.json(&["sbx", "checkpoint", "web", "-o", "json"]).await;
    let snapshot = snapshot["id"].as_str().unwrap();
    let none = world.dorm(&["sbx", "diff", snapshot, "web"]).await;
    assert!(none.code == 0 && none.stderr.starts_with("no files differ between"), "{none:?}");
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo three > /root/note"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo new > /root/new"]).await.code, 0);
    let rows = world.table(&["sbx", "diff", snapshot, "web"]).await;
    assert_eq!(rows[0], ["CHANGE", "PATH", "BEFORE", "AFTER"]);
    assert_eq!(&rows[1][..2], ["added", "/root/new"]);
    assert_eq!(&rows[2][..2], ["modified", "/root/note"]);
    let older_first = world.json(&["sbx", "diff", "web", snapshot, "-o", "json"]).await;
    assert_eq!(older_first["from"], *snapshot, "a snapshot is older than the sandbox of now");
    let added = json!({ "path": "/root/new", "change": "added", "before_bytes": null, "after_bytes": 4 });
    assert_eq!(older_first["changes"][0], added);
    let back = world.json(&["sbx", "diff", "web", snapshot, "--in-order", "-o", "json"]).await;
    assert_eq!(back["to"], *snapshot);
    let removed = json!({ "path": "/root/new", "change": "removed", "before_bytes": 4, "after_bytes": null });
    assert_eq!(back["changes"][0], removed);
    let later = world.json(&["sbx", "checkpoint", "web", "-o", "json"]).await;
    let later = later["id"].as_str().unwrap();
    let snapshots = world.json(&["sbx", "diff", later, snapshot, "-o", "json"]).await;
    assert_eq!((&snapshots["from"], &snapshots["to"]), (&json!(snapshot), &json!(later)), "the older one comes first");
    assert_eq!(snapshots["changes"][0], added);
    let rewound = world.dorm(&["sbx", "rewind", "web", "--to", snapshot]).await;
    assert_eq!(rewound.code, 0, "{rewound:?}");
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "cat", "/root/note"]).await.text(), "one\n");
    world.dorm(&["sbx", "diff", "web", "nobody"]).await.failed(3, "no snapshot and no sandbox 'nobody'");
}
