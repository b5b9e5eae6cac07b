//! The choice of the daemon, and the messages when there is none.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::world::{World, bare, end};

#[tokio::test]
async fn a_daemon_that_never_ran_is_5() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let said = format!(
        "error: no daemon has run with the data directory {data}\n  \
         next: start `dorm serve`, or give its address with --server or its data directory with --data\n"
    );
    end(bare(&["sbx", "ls", "--data", data]), b"").await.refused(5, &said);
    end(bare(&["events", "--data", data]), b"").await.refused(5, &said);
    end(bare(&["sbx", "--data", data, "exec", "web", "--", "true"]), b"").await.refused(125, &said);
}

#[tokio::test]
async fn a_daemon_that_has_stopped_is_5() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    world.dorm(&["sbx", "ls", "--server", &free]).await.refused(
        5,
        &format!(
            "error: no daemon answers at {free}: Connection refused (os error 111)\n  \
             next: start `dorm serve`, or give its address with --server or its data directory with --data\n"
        ),
    );
    world.dorm(&["sbx", "shell", "web", "--server", &free]).await.failed(125, "no daemon answers at");
}

#[tokio::test]
async fn a_wrong_key_is_refused() {
    let world = World::new().await;
    let mut command = world.command(&["sbx", "ls"]);
    command.env("DORM_KEY", "wrong");
    let ran = end(command, b"").await;
    ran.failed(4, "error: an API key is required");
    let mut command = world.command(&["sbx", "shell", "web"]);
    command.env("DORM_KEY", "wrong");
    end(command, b"").await.failed(125, "error: an API key is required");
}

#[tokio::test]
async fn server_and_key_can_be_given() {
    let world = World::new().await;
    let server = format!("http://{}/", world.address);
    let mut command = bare(&["sbx", "ls"]);
    command.env("DORM_SERVER", &server).env("DORM_KEY", "a-key-of-the-tests");
    assert_eq!(end(command, b"").await.code, 0);
    let mut command = bare(&["sbx", "--server", &server, "ls"]);
    command.env("DORM_KEY", "a-key-of-the-tests");
    assert_eq!(end(command, b"").await.code, 0);
}

#[tokio::test]
async fn the_key_of_this_host_is_not_shown_to_others() {
    let world = World::new().await;
    world
        .dorm(&["sbx", "ls", "--server", "http://192.0.2.1:7070"])
        .await
        .refused(2, "error: no key for http://192.0.2.1:7070\n  next: set DORM_KEY\n");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    let world = World::new().await;
    for server in ["ftp://127.0.0.1:7070", "http://127.0.0.1:7070/v1", "127.0.0.1:7070"] {
        world.dorm(&["sbx", "ls", "--server", server]).await.failed(2, server);
    }
}

#[tokio::test]
async fn something_else_that_answers_is_no_daemon() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let other = tokio::spawn(async move {
        while let Ok((mut visitor, _)) = listener.accept().await {
            let _ = visitor.read(&mut [0; 4096]).await;
            let _ =
                visitor.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno").await;
        }
    });
    let said = format!("error: {server} answered with status 404 but is not a Dormouse daemon");
    world.dorm(&["sbx", "ls", "--server", &server]).await.failed(5, &said);
    other.abort();
}
