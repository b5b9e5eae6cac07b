//! `dorm operation`.

use serde_json::Value;

use crate::world::World;

#[tokio::test]
async fn operations_are_listed_and_described() {
    let world = World::new().await;
    let id = world.named("web").await;
    world.named("other").await;
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    let rows = world.table(&["operation", "ls", "--sandbox", "web"]).await;
    assert_eq!(rows[0], ["ID", "KIND", "SANDBOX", "BY", "STATUS", "STARTED", "TOOK"]);
    assert_eq!(rows.len(), 3);
    assert!(rows[1..].iter().all(|row| row[2] == id && row[4] == "completed"), "{rows:?}");
    assert_eq!(world.table(&["operation", "ls", "--limit", "1"]).await.len(), 2);
    let events = world.json(&["events", "--sandbox", "web", "-o", "json"]).await;
    let operation = events.as_array().unwrap().last().unwrap()["operation"].as_str().unwrap();
    let described = world.json(&["operation", "describe", operation, "-o", "json"]).await;
    assert_eq!((&described["kind"], &described["status"]), (&Value::from("suspend"), &Value::from("completed")));
    let shown = world.dorm(&["operation", "describe", operation]).await;
    assert!(shown.text().contains("suspend"), "{}", shown.text());
    assert_eq!(described["caller"]["door"], "api");
    let caller = shown.rows().into_iter().find(|row| row[0] == "caller").unwrap();
    assert!(caller[1].starts_with("owner's ") && caller[1].ends_with(", listener api"), "{caller:?}");
    let unknown = "abcdefghij2345678901";
    let message = format!("there is no operation {unknown}");
    world.dorm(&["operation", "describe", unknown]).await.failed(3, &message);
}
