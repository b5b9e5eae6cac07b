//! `dorm sbx ls`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn what_is_over_is_hidden_unless_it_is_asked_for() {
    let world = World::new().await;
    let id = world.named("over").await;
    world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "terminate", "over"]).await.code, 0);
    let names = |rows: Vec<Vec<String>>| rows.into_iter().skip(1).map(|row| row[1].clone()).collect::<Vec<_>>();
    assert_eq!(names(world.table(&["sbx", "ls"]).await), ["web"]);
    assert_eq!(names(world.table(&["sbx", "ls", "--all"]).await), ["over", "web"], "the oldest first");
    let rows = world.table(&["sbx", "ls", "--state", "terminated"]).await;
    assert_eq!((rows.len(), &rows[1][0], rows[1][2].as_str()), (2, &id, "terminated (requested)"));
}

#[tokio::test]
async fn nothing_is_a_table_without_rows_or_an_empty_list() {
    let world = World::new().await;
    let ran = world.dorm(&["sbx", "ls"]).await;
    assert_eq!(ran.text(), "ID  NAME  STATE  GENERATION  EXPIRES IN  AGE  CPUS  MEMORY  IMAGE\n");
    assert_eq!(world.json(&["sbx", "ls", "-o", "json"]).await, json!([]));
}

#[tokio::test]
async fn the_list_is_by_creation_or_by_the_last_start_in_both_directions() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.named(name).await;
    }
    assert_eq!(world.dorm(&["sbx", "suspend", "a"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "resume", "a"]).await.code, 0);
    for (options, expected) in [
        (&[][..], &["a", "b", "c"][..]),
        (&["--order", "desc"], &["c", "b", "a"]),
        (&["--sort", "started"], &["b", "c", "a"]),
        (&["--sort", "started", "--order", "desc", "--limit", "2"], &["a", "c"]),
        (&["--limit", "1"], &["a"]),
    ] {
        let rows = world.table(&[&["sbx", "ls"], options].concat()).await;
        let names: Vec<_> = rows.iter().skip(1).map(|row| row[1].as_str()).collect();
        assert_eq!(names, expected, "{options:?}");
    }
    world.dorm(&["sbx", "ls", "--sort", "name"]).await.failed(2, "--sort");
}

#[tokio::test]
async fn states_and_labels_narrow_the_list() {
    let world = World::new().await;
    for (name, team) in [("a", "team=red"), ("b", "team=blue"), ("c", "team=red")] {
        assert_eq!(world.dorm(&["sbx", "create", name, "--label", team]).await.code, 0);
    }
    assert_eq!(world.dorm(&["sbx", "suspend", "c"]).await.code, 0);
    let count = async |arguments: &[&str]| world.json(arguments).await.as_array().unwrap().len();
    assert_eq!(count(&["sbx", "ls", "--label", "team=red", "-o", "json"]).await, 2);
    assert_eq!(count(&["sbx", "ls", "--state", "running", "-o", "json"]).await, 2);
    assert_eq!(count(&["sbx", "ls", "--state", "suspended,pending", "--label", "team=red", "-o", "json"]).await, 1);
    world
        .dorm(&["sbx", "ls", "--state", "asleep"])
        .await
        .failed(2, "'asleep' is not a state: states are pending, running");
}
