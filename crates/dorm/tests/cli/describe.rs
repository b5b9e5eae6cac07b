//! `dorm sbx describe`.

use crate::world::World;

#[tokio::test]
async fn everything_is_told_by_name_or_id() {
    let world = World::new().await;
    let create = ["sbx", "create", "web", "--label", "a=b", "-e", "SECRET=hunter2", "--timeout", "10m"];
    assert_eq!(world.dorm(&create).await.code, 0);
    let id = world.json(&["sbx", "describe", "web", "-o", "json"]).await["id"].as_str().unwrap().to_owned();
    let by_name = world.dorm(&["sbx", "describe", "web"]).await;
    let by_id = world.dorm(&["sbx", "describe", &id]).await;
    assert_eq!((by_name.code, by_name.text()), (0, by_id.text()));
    let rows = by_name.rows();
    let names: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(
        names.join(", "),
        "id, name, project, state, generation, started with, image's command, sleep image, image, snapshot, cpus, memory, disk, processes, \
         egress, headers, env, secrets, labels, timeout, idle timeout, timeout after wake, max run, on timeout, on suspend failure, \
         suspendable, wakes on, ports, sleep images kept, on unrestorable, checkpoints, created, \
         created by, last active, last started, running since, expires"
    );
    for (name, value) in [
        ("id", id.as_str()),
        ("name", "web"),
        ("state", "running"),
        ("started with", "image only"),
        ("image's command", "not started"),
        ("sleep images kept", "1"),
        ("on unrestorable", "fail"),
        ("sleep image", "-"),
        ("memory", "512 MiB"),
        ("disk", "4 GiB"),
        ("egress", "public"),
        ("env", "SECRET"),
        ("labels", "a=b"),
        ("timeout", "10m"),
        ("on timeout", "suspend"),
        ("on suspend failure", "keep"),
        ("wakes on", "traffic"),
    ] {
        let row = rows.iter().find(|row| row[0] == name).unwrap();
        assert_eq!(row[1], value, "{name}");
    }
    assert!(!by_name.text().contains("hunter2"));
}

#[tokio::test]
async fn an_unknown_one_is_not_found() {
    let world = World::new().await;
    for unknown in ["nobody", "a2345678901234567890", "../../info", "Not Legal"] {
        let ran = world.dorm(&["sbx", "describe", unknown]).await;
        ran.failed(3, &format!("error: there is no sandbox '{unknown}'\n  next: list the existing sandboxes\n"));
    }
}
