//! `dorm project`, and acting in a project.

use crate::world::{World, end};

#[tokio::test]
async fn a_project_is_made_used_limited_and_removed() {
    let world = World::new().await;
    let rows = world.table(&["project", "create", "team-a", "--running", "1", "--memory", "4G"]).await;
    assert_eq!(rows[0], ["PROJECT", "SANDBOXES", "RUNNING", "CPUS", "MEMORY", "DISK"]);
    assert_eq!(rows[1][..3], ["team-a", "0", "0 / 1"]);
    let made = world.json(&["key", "create", "alice", "--project", "team-a", "-o", "json"]).await;
    let as_alice = async |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("DORM_KEY", made["key"].as_str().unwrap());
        end(command, b"").await
    };
    assert_eq!(as_alice(&["sbx", "create", "web"]).await.code, 0);
    let refused = as_alice(&["sbx", "create", "second"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("budget of 1 running sandboxes"), "{}", refused.stderr);
    let refused = as_alice(&["project", "ls"]).await;
    assert!(refused.code != 0 && refused.stderr.contains("this key is for a project"), "{}", refused.stderr);
    let seen = world.dorm(&["sbx", "ls", "--project", "team-a"]).await.text();
    assert!(seen.contains("web"), "{seen}");
    assert!(!world.dorm(&["sbx", "ls"]).await.text().contains("web"));
    world.dorm(&["sbx", "ls", "--project", "nobody"]).await.failed(3, "there is no project 'nobody'");
    let limited = world.json(&["project", "limit", "team-a", "--running", "2", "-o", "json"]).await;
    assert_eq!(
        (&limited["budgets"]["running"], &limited["budgets"]["memory_bytes"]),
        (&2.into(), &(4_u64 << 30).into())
    );
    let limited = world.json(&["project", "limit", "team-a", "--only", "--sandboxes", "9", "-o", "json"]).await;
    assert!(limited["budgets"]["running"].is_null() && limited["budgets"]["sandboxes"] == 9, "{limited}");
    let names: Vec<_> = world.table(&["project", "ls"]).await.into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(names, ["PROJECT", "local", "team-a"]);
    world.dorm(&["project", "rm", "team-a"]).await.failed(4, "it is in use by 1 sandboxes");
    assert_eq!(world.dorm(&["sbx", "terminate", "web", "--project", "team-a"]).await.code, 0);
    assert_eq!(world.dorm(&["project", "rm", "team-a"]).await.code, 0);
    world.dorm(&["project", "create", "team-a"]).await.failed(4, "names are not used again");
}
