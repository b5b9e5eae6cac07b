//! `dorm sbx port`.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::world::{PATIENCE, World, eventually, wait};

#[tokio::test]
async fn the_address_of_a_port_is_told() {
    let world = World::new().await;
    let id = world.named("web").await;
    let url = format!("http://8000-{id}.localhost:{}/", world.address.port());
    assert_eq!(world.dorm(&["sbx", "port", "web", "8000"]).await.text(), format!("{url}\n"));
    assert_eq!(world.json(&["sbx", "port", "web", "8000", "-o", "json"]).await["url"], url);
    world.dorm(&["sbx", "port", "web", "0"]).await.failed(2, "'0'");
    world.dorm(&["sbx", "port", "web", "70000"]).await.failed(2, "'70000'");
    world.dorm(&["sbx", "port", "nobody", "80"]).await.failed(3, "there is no sandbox 'nobody'");
}

#[tokio::test]
async fn a_port_can_be_brought_here() {
    let world = World::new().await;
    world.named("web").await;
    let mut server =
        world.command(&["sbx", "exec", "web", "--", "serve", "8000"]).stdin(Stdio::null()).spawn().unwrap();
    let mut forward = world.command(&["sbx", "port", "web", "8000", "--local", "0"]).spawn().unwrap();
    let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
    let url = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    eventually("the server inside answers", || async {
        client.get(&url).send().await.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    for _ in 0..3 {
        let text = client.get(&url).send().await.unwrap().text().await.unwrap();
        assert_eq!(text.as_bytes(), dorm_engine_fake::SERVED.as_bytes());
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(forward.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(wait(forward).await.code, 0);
    server.start_kill().unwrap();
    let mut rest = Vec::new();
    server.stdout.take().unwrap().read_to_end(&mut rest).await.unwrap();
}
