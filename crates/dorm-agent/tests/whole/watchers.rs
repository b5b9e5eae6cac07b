//! Watchers that keep changes.

use std::fs;

use dorm_agent_client::{AgentError, NumberedEvent, Scope, WatchEventKind};

use crate::support::{Sandbox, within};

async fn take_all(sandbox: &Sandbox, watcher: u64, mut after: u64) -> Vec<NumberedEvent> {
    let mut all = Vec::new();
    loop {
        let page = within(sandbox.agent.watcher_events(watcher, after, 1000)).await.unwrap();
        after = page.items.last().map_or(after, |last| last.number);
        all.extend(page.items);
        if !page.more {
            return all;
        }
    }
}

#[tokio::test]
async fn a_watcher_keeps_every_change_also_without_a_host() {
    const FILES: u64 = 10_000;
    let sandbox = Sandbox::new().await;
    fs::create_dir(sandbox.host_path("watched")).unwrap();
    let watcher = within(sandbox.agent.create_watcher(&sandbox.path("watched"), Scope::Below)).await.unwrap();
    for number in 0..FILES / 2 {
        fs::create_dir(sandbox.host_path(&format!("watched/{number}"))).unwrap();
    }
    let sandbox = sandbox.reconnect().await;
    for number in FILES / 2..FILES {
        fs::create_dir(sandbox.host_path(&format!("watched/{number}"))).unwrap();
    }
    let changes = take_all(&sandbox, watcher, 0).await;
    let paths: Vec<_> = changes.iter().map(|change| change.event.path.clone()).collect();
    let expected: Vec<_> = (0..FILES).map(|number| sandbox.path(&format!("watched/{number}"))).collect();
    assert!(paths == expected, "{} changes", paths.len());
    assert!(changes.iter().zip(1..).all(|(change, number)| change.number == number));
    let again = within(sandbox.agent.watcher_events(watcher, FILES - 1, 10)).await.unwrap();
    assert_eq!(again.items, changes[changes.len() - 1..]);
    // Forgotten changes are a gap for a caller that asks for them again.
    let gap = within(sandbox.agent.watcher_events(watcher, 5, 1)).await.unwrap();
    assert_eq!((gap.items[0].event.kind, gap.more), (WatchEventKind::Overflow, true));
    let future = within(sandbox.agent.watcher_events(watcher, FILES + 1, 1)).await;
    assert!(matches!(future, Err(AgentError::Invalid(_))), "{future:?}");
}

#[tokio::test]
async fn watchers_are_listed_limited_and_removed() {
    let sandbox = Sandbox::new().await;
    let mut watchers = Vec::new();
    let refused = loop {
        match within(sandbox.agent.create_watcher(&sandbox.path(""), Scope::Here)).await {
            Ok(watcher) => watchers.push(watcher),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AgentError::Invalid(_)) && watchers.len() == 64, "{refused}");
    fs::write(sandbox.host_path("file"), "x").unwrap();
    let list = within(sandbox.agent.watchers()).await.unwrap();
    assert!(list.iter().map(|one| one.watcher).eq(watchers.iter().copied()) && list.iter().all(|one| one.last >= 1));
    for watcher in &watchers {
        within(sandbox.agent.remove_watcher(*watcher)).await.unwrap();
        let gone = within(sandbox.agent.watcher_events(*watcher, 0, 1)).await;
        assert!(matches!(gone, Err(AgentError::NoWatcher(_))), "{gone:?}");
    }
    let next = within(sandbox.agent.create_watcher(&sandbox.path(""), Scope::Here)).await.unwrap();
    assert!(!watchers.contains(&next));
    let absent = within(sandbox.agent.create_watcher(&sandbox.path("absent"), Scope::Here)).await;
    assert!(matches!(absent, Err(AgentError::NotFound(_))), "{absent:?}");
}
