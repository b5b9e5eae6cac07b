//! `dorm pool`.

use serde_json::{Value, json};

use crate::world::World;

/// The two numbers of a pool.
fn numbers(pool: &Value) -> (&Value, &Value) {
    (&pool["ready"], &pool["most"])
}

#[tokio::test]
async fn a_resize_changes_the_given_numbers_and_keeps_the_other() {
    let world = World::new().await;
    let made = world.json(&["pool", "create", "workers", "--ready", "2", "--most", "10", "-o", "json"]).await;
    assert_eq!(numbers(&made), (&json!(2), &json!(10)));
    for (options, expected) in [
        (&["--most", "20"][..], (json!(2), json!(20))),
        (&["--ready", "3"], (json!(3), json!(20))),
        (&["--no-most"], (json!(3), Value::Null)),
        (&["--most", "5"], (json!(3), json!(5))),
        (&["--ready", "1", "--no-most"], (json!(1), Value::Null)),
        (&["--ready", "2", "--most", "4"], (json!(2), json!(4))),
    ] {
        let resized = world.json(&[&["pool", "resize", "workers", "-o", "json"], options].concat()).await;
        assert_eq!(numbers(&resized), (&expected.0, &expected.1), "{options:?}");
    }
}

#[tokio::test]
async fn a_resize_without_a_number_or_with_two_limits_is_a_usage_error() {
    let world = World::new().await;
    world.json(&["pool", "create", "workers", "--ready", "0", "-o", "json"]).await;
    let none: &[&str] = &[];
    for options in [none, &["--most", "2", "--no-most"]] {
        world.dorm(&[&["pool", "resize", "workers"], options].concat()).await.failed(2, "--most");
    }
    world.dorm(&["pool", "resize", "others", "--ready", "1"]).await.failed(3, "there is no sandbox pool 'others'");
}
