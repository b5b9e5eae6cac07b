use std::fs;

use dorm_agent_client::{AgentError, GuestPath, Scope, WatchEventKind, WatchStream};
use futures_util::StreamExt;

use crate::support::{Sandbox, within};

/// Reads events until the wanted one.
async fn expect(events: &mut WatchStream, kind: WatchEventKind, path: &GuestPath) {
    loop {
        let event = within(events.next()).await.expect("the watch ended").unwrap();
        if event.kind == kind && event.path == *path {
            return;
        }
    }
}

#[tokio::test]
async fn changes_of_a_directory_are_reported_in_order() {
    let sandbox = Sandbox::new().await;
    let mut events = within(sandbox.agent.watch(&sandbox.path(""), Scope::Here)).await.unwrap();
    fs::write(sandbox.host_path("file"), "x").unwrap();
    fs::rename(sandbox.host_path("file"), sandbox.host_path("other")).unwrap();
    fs::remove_file(sandbox.host_path("other")).unwrap();
    expect(&mut events, WatchEventKind::Created, &sandbox.path("file")).await;
    expect(&mut events, WatchEventKind::Modified, &sandbox.path("file")).await;
    expect(&mut events, WatchEventKind::MovedFrom, &sandbox.path("file")).await;
    expect(&mut events, WatchEventKind::MovedTo, &sandbox.path("other")).await;
    expect(&mut events, WatchEventKind::Removed, &sandbox.path("other")).await;
}

#[tokio::test]
async fn what_lies_deeper_is_told_only_when_asked_for() {
    let sandbox = Sandbox::new().await;
    fs::create_dir(sandbox.host_path("old")).unwrap();
    let mut here = within(sandbox.agent.watch(&sandbox.path(""), Scope::Here)).await.unwrap();
    let mut below = within(sandbox.agent.watch(&sandbox.path(""), Scope::Below)).await.unwrap();
    fs::write(sandbox.host_path("old/file"), "x").unwrap();
    expect(&mut below, WatchEventKind::Created, &sandbox.path("old/file")).await;
    fs::create_dir_all(sandbox.host_path("new/deep")).unwrap();
    fs::write(sandbox.host_path("new/deep/file"), "x").unwrap();
    expect(&mut below, WatchEventKind::Created, &sandbox.path("new/deep/file")).await;
    fs::rename(sandbox.host_path("new"), sandbox.host_path("moved")).unwrap();
    expect(&mut below, WatchEventKind::MovedTo, &sandbox.path("moved")).await;
    expect(&mut below, WatchEventKind::Created, &sandbox.path("moved/deep/file")).await;
    fs::write(sandbox.host_path("moved/deep/late"), "x").unwrap();
    expect(&mut below, WatchEventKind::Created, &sandbox.path("moved/deep/late")).await;
    let first = within(here.next()).await.unwrap().unwrap();
    assert_eq!((first.kind, first.path), (WatchEventKind::Created, sandbox.path("new")));
}

#[tokio::test]
async fn only_directories_can_be_watched() {
    let sandbox = Sandbox::new().await;
    fs::write(sandbox.host_path("file"), "x").unwrap();
    let missing = within(sandbox.agent.watch(&sandbox.path("missing"), Scope::Here)).await;
    assert!(matches!(missing, Err(AgentError::NotFound(_))));
    let file = within(sandbox.agent.watch(&sandbox.path("file"), Scope::Here)).await;
    assert!(matches!(file, Err(AgentError::NotADirectory(_))));
}
