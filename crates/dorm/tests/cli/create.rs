//! `dorm sbx create`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_new_sandbox_is_printed_as_a_row() {
    let world = World::new().await;
    let rows = world.table(&["sbx", "create", "web", "--memory", "256M", "--cpus", "0.5", "--timeout", "1h30m"]).await;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], ["ID", "NAME", "STATE", "GENERATION", "EXPIRES IN", "AGE", "CPUS", "MEMORY", "IMAGE"]);
    assert_eq!((rows[1][0].len(), &rows[1][1..4]), (20, &["web".to_owned(), "running".to_owned(), "1".to_owned()][..]));
    assert!(rows[1][4].starts_with("1h "), "{rows:?}");
    assert_eq!(&rows[1][6..8], ["0.5", "256 MiB"]);
}

#[tokio::test]
async fn every_option_reaches_the_daemon() {
    let world = World::new().await;
    let arguments = "sbx create web --image base --cpus 2 --memory 1G --disk 8G --timeout 5m --idle-timeout 90 \
                     --on-timeout terminate -e A=1 --env B=x=y --label team=red --egress 198.51.100.0/24,*.example.com \
                     --wake never --on-suspend-failure terminate -o json";
    let sandbox = world.json(&arguments.split_whitespace().collect::<Vec<_>>()).await;
    assert_eq!(
        sandbox["resources"],
        json!({"cpu_millis": 2000, "memory_bytes": 1_u64 << 30, "disk_bytes": 8_u64 << 30, "processes": 512})
    );
    assert_eq!((&sandbox["timeout_secs"], &sandbox["idle_timeout_secs"]), (&json!(300.0), &json!(90.0)));
    assert_eq!((&sandbox["on_timeout"], &sandbox["wake"]), (&json!("terminate"), &json!("never")));
    assert_eq!(sandbox["on_suspend_failure"], "terminate");
    assert_eq!((&sandbox["env"], &sandbox["labels"]), (&json!(["A", "B"]), &json!({"team": "red"})));
    assert_eq!(sandbox["egress"], json!({"allow": ["198.51.100.0/24", "*.example.com"]}));
}

#[tokio::test]
async fn without_a_name_it_is_ephemeral() {
    let world = World::new().await;
    let sandbox = world.json(&["sbx", "create", "--egress", "none", "-o", "json"]).await;
    assert_eq!((&sandbox["name"], &sandbox["suspendable"]), (&json!(null), &json!(false)));
    assert_eq!((&sandbox["on_timeout"], &sandbox["egress"]), (&json!("terminate"), &json!("none")));
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_nothing_is_made() {
    let world = World::new().await;
    for (arguments, code, said) in [
        (&["sbx", "create", "No_Name"][..], 2, "'No_Name' is not a valid name"),
        (&["sbx", "create", "--memory", "1M"], 2, "memory_bytes is 1048576: it must be between"),
        (&["sbx", "create", "--cpus", "1000"], 2, "cpu_millis is 1000000"),
        (&["sbx", "create", "--cpus", "none"], 2, "'none' is not a number of CPUs such as 2 or 0.5"),
        (&["sbx", "create", "--memory", "lots"], 2, "'lots' is not a size such as 512M or 4G"),
        (&["sbx", "create", "--timeout", "0"], 2, "'0' is not a time such as 90s, 5m or 1h30m"),
        (&["sbx", "create", "--env", "A"], 2, "'A' is not KEY=VALUE"),
        (
            &["sbx", "create", "--egress", "some"],
            2,
            "'some' is neither public, closed, none, a network such as 198.51.100.0/24, nor a host name",
        ),
        (&["sbx", "create", "--egress", "1.2.3.4.5"], 2, "1.2.3.4.5"),
        (&["sbx", "create", "--image", "base", "--snapshot", "x"], 2, "cannot be used with"),
        (&["sbx", "create", "--on-timeout", "suspend"], 2, "a sandbox that is not suspendable"),
        (&["sbx", "create", "--image", "nothing"], 3, "nothing"),
        (&["sbx", "create", "--snapshot", "a2345678901234567890"], 3, "there is no snapshot a2345678901234567890"),
    ] {
        let ran = world.dorm(arguments).await;
        ran.failed(code, said);
        assert_eq!(ran.text(), "", "{arguments:?}");
    }
    assert_eq!(world.json(&["sbx", "ls", "--all", "-o", "json"]).await, json!([]));
}

#[tokio::test]
async fn a_name_is_given_once() {
    let world = World::new().await;
    world.named("web").await;
    let ran = world.dorm(&["sbx", "create", "web"]).await;
    ran.failed(4, "web");
    assert!(ran.stderr.contains("\n  next: choose another name, or terminate its holder\n"), "{ran:?}");
}

#[tokio::test]
async fn a_secret_is_given_to_processes_shown_to_nobody_and_follows_only_when_it_is_named() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, value: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("{value}\n")).unwrap();
        format!("KEY=@{}", path.display())
    };
    let (key, other) = (file("key", "hunter3"), file("other", "new"));
    let mut create = world.command(&["sbx", "create", "web", "--secret", "TOKEN", "--secret", &key, "-o", "json"]);
    create.env("TOKEN", "hunter2");
    let made = crate::world::end(create, b"").await;
    assert_eq!(made.code, 0, "{made:?}");
    let printed = ["--", "sh", "-c", "echo $TOKEN $KEY"];
    let ask = |name: &'static str| [&["sbx", "exec", name][..], &printed].concat();
    assert_eq!(world.dorm(&ask("web")).await.text(), "hunter2 hunter3\n");
    let described = world.dorm(&["sbx", "describe", "web"]).await;
    assert!(described.rows().contains(&vec!["secrets".to_owned(), "KEY, TOKEN".to_owned()]), "{described:?}");
    let events = world.dorm(&["events", "-o", "json"]).await;
    for shown in [&made, &described, &events] {
        assert!(!shown.text().contains("hunter") && !shown.stderr.contains("hunter"), "{shown:?}");
    }
    assert_eq!(world.dorm(&["sbx", "fork", "web", "--name", "none"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "fork", "web", "--name", "one", "--secret", "TOKEN"]).await.code, 0);
    assert_eq!(world.dorm(&["sbx", "clone", "web", "--name", "two", "--secret", &other]).await.code, 0);
    for (name, expected) in [("none-1", ""), ("one-1", "hunter2"), ("two", "new")] {
        assert_eq!(world.dorm(&ask(name)).await.text().trim(), expected, "{name}");
    }
    world.dorm(&["sbx", "fork", "web", "--secret", "OTHER"]).await.failed(2, "no secret 'OTHER'");
    world.dorm(&["sbx", "create", "--secret", "NOT_SET"]).await.failed(2, "the secret 'NOT_SET' has no value");
    world.dorm(&["sbx", "create", "--secret", "A=@/nonexistent"]).await.failed(1, "read secret 'A' from /nonexistent");
    for verb in [&["sbx", "create"][..], &["sbx", "fork", "web"], &["sbx", "clone", "web"]] {
        let refused = world.dorm(&[verb, &["--secret", "TOKEN=hunter4"]].concat()).await;
        refused.failed(2, "the value of secret 'TOKEN' is among the arguments");
        assert!(!refused.stderr.contains("hunter"), "{refused:?}");
    }
}
