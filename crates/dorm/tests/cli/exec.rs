//! `dorm sbx exec`.

use std::process::Stdio;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use crate::world::{PATIENCE, World, eventually, noise, wait, write};

#[tokio::test]
async fn output_and_exit_code_are_the_commands_own() {
    let world = World::new().await;
    world.named("web").await;
    let ran = world.dorm(&["sbx", "exec", "web", "--", "sh", "-c", "echo out; nothing-here; exit 7"]).await;
    assert_eq!((ran.code, ran.text().as_str()), (7, "out\n"));
    assert_eq!(ran.stderr, "sh: 1: nothing-here: not found\n");
    assert_eq!(world.dorm(&["sbx", "exec", "web", "true"]).await.code, 0, "the dashes may be left out");
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "false"]).await.code, 1);
}

#[tokio::test]
async fn options_behind_the_command_are_the_commands() {
    let world = World::new().await;
    world.named("web").await;
    assert_eq!(world.dorm(&["sbx", "exec", "web", "--", "echo", "-e", "--", "-o"]).await.text(), "-e -- -o\n");
    assert_eq!(world.dorm(&["sbx", "exec", "web", "echo", "-t", "--help"]).await.text(), "-t --help\n");
}

#[tokio::test]
async fn variables_and_directory_are_the_commands() {
    let world = World::new().await;
    assert_eq!(world.dorm(&["sbx", "create", "web", "-e", "A=sandbox", "-e", "B=sandbox"]).await.code, 0);
    let ran = world
        .dorm(&["sbx", "exec", "web", "-e", "B=exec", "-w", "/tmp", "--", "sh", "-c", "echo \"$A $B\"; pwd"])
        .await;
    assert_eq!((ran.code, ran.text().as_str()), (0, "sandbox exec\n/tmp\n"), "{ran:?}");
}

#[tokio::test]
async fn bytes_that_are_no_text_come_through_unharmed() {
    let world = World::new().await;
    world.named("web").await;
    let bytes = noise(3 << 20);
    write(&world.path("noise"), &bytes);
    assert_eq!(world.dorm(&["sbx", "cp", "noise", "web:/tmp/noise"]).await.code, 0);
    let ran = world.dorm(&["sbx", "exec", "web", "--", "cat", "/tmp/noise"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout == bytes, "{} bytes came back", ran.stdout.len());
}

#[tokio::test]
async fn input_is_passed_on_to_its_end() {
    let world = World::new().await;
    world.named("web").await;
    let bytes = noise(2 << 20);
    let ran = world.dorm_with(&["sbx", "exec", "web", "-i", "--", "cat"], &bytes).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout == bytes, "{} bytes came back", ran.stdout.len());
    let ran = world.dorm_with(&["sbx", "exec", "web", "--", "cat"], b"not asked for").await;
    assert_eq!((ran.code, ran.text().as_str()), (0, ""));
}

#[tokio::test]
async fn a_command_that_wants_no_more_input_is_no_error() {
    let world = World::new().await;
    world.named("web").await;
    let mut child = world.command(&["sbx", "exec", "web", "-i", "--", "sh", "-c", "exit 3"]).spawn().unwrap();
    // Standard input stays open: the end of the command ends the verb.
    let _stdin = child.stdin.take().unwrap();
    assert_eq!(wait(child).await.code, 3);
}

#[tokio::test]
async fn output_comes_while_the_command_runs() {
    let world = World::new().await;
    world.named("web").await;
    let mut child = world.command(&["sbx", "exec", "web", "-i", "--", "counter", "token"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 1..=3 {
        stdin.write_all(b"next\n").await.unwrap();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        assert!(line.contains("token") && line.contains(&number.to_string()), "{line}");
    }
    drop(stdin);
    assert_eq!(wait(child).await.code, 0);
}

#[tokio::test]
async fn one_document_tells_all_of_a_short_command() {
    let world = World::new().await;
    world.named("web").await;
    let ran = world.dorm(&["sbx", "exec", "web", "-o", "json", "--", "sh", "-c", "echo out; exit 5"]).await;
    let result: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.code, &result["exit_code"], &result["stdout"]), (5, &json!(5), &json!("out\n")));
}

#[tokio::test]
async fn what_dorm_itself_cannot_do_is_125() {
    let world = World::new().await;
    let id = world.named("web").await;
    let not_found = world.dorm(&["sbx", "exec", "web", "--", "no-such-command"]).await;
    not_found.failed(125, "no-such-command");
    world.dorm(&["sbx", "exec", "nobody", "--", "true"]).await.failed(125, "error: there is no sandbox 'nobody'");
    world.dorm(&["sbx", "exec", "web", "-w", "relative", "--", "true"]).await.failed(125, "relative");
    world.dorm(&["sbx", "exec", "web"]).await.failed(2, "<COMMAND>");
    assert_eq!(world.dorm(&["sbx", "suspend", "web"]).await.code, 0);
    let asleep = world.dorm(&["sbx", "exec", &id, "--", "true"]).await;
    asleep.failed(125, "suspended");
    assert!(asleep.stderr.contains("  next: resume it first, or let the call wake it"), "{asleep:?}");
}

#[tokio::test]
async fn a_signal_goes_to_the_command_and_its_end_is_told() {
    let world = World::new().await;
    world.named("web").await;
    let mut child = world
        .command(&["sbx", "exec", "web", "--", "sh", "-c", "echo ready; sleep 100000"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    let mut stdout = child.stdout.take().unwrap();
    tokio::time::timeout(PATIENCE, stdout.read_exact(&mut ready)).await.unwrap().unwrap();
    signal(&child, rustix::process::Signal::TERM);
    assert_eq!(wait(child).await.code, 128 + 15);
}

#[tokio::test]
async fn a_closed_output_ends_it_quietly_and_the_command_too() {
    let world = World::new().await;
    world.named("web").await;
    let mut child = world.command(&["sbx", "exec", "web", "--", "yes"]).stdin(Stdio::null()).spawn().unwrap();
    let mut some = [0; 2];
    let mut stdout = child.stdout.take().unwrap();
    tokio::time::timeout(PATIENCE, stdout.read_exact(&mut some)).await.unwrap().unwrap();
    drop(stdout);
    let ran = wait(child).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (141, ""));
    let (client, address) = (reqwest::Client::builder().no_proxy().build().unwrap(), world.address);
    eventually("the command has ended", || async {
        let url = format!("http://{address}/v1/sandboxes/web/processes");
        let answer = client.get(url).bearer_auth("a-key-of-the-tests").send().await.unwrap();
        let list: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        !list["processes"][0]["exit"].is_null()
    })
    .await;
}

fn signal(child: &tokio::process::Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
