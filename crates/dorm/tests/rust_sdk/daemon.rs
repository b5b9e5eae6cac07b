//! Events, operations, webhooks, policies and maintenance.

use anyhow::Result;
use dorm_client::Dormouse;
use dorm_client::Sandbox;
use std::collections::BTreeMap;

use dorm_client::types::{
    CreateWebhook, OnUnrestorable, OperationStatus, SetCheckpoints, SetRetention, SnapshotKind, Time,
};

use crate::cases::{Cases, code_of, kinds};

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    sandbox: Sandbox,
}

crate::cases::area! {
    metrics_document_and_authority_are_read,
    events_are_read_from_any_number_on,
    events_of_one_sandbox_are_followed,
    events_of_all_sandboxes_are_followed_from_the_last_one_on,
    events_after_a_lost_connection_continue,
    operations_are_listed_and_found,
    a_webhook_is_created_replayed_and_deleted,
    a_policy_for_checkpoints_is_set_and_removed,
    retention_is_changed,
    usage_is_recorded,
    what_is_on_disk_is_listed_and_verified,
    files_are_taken_out_of_a_memory_snapshot,
}

#[tokio::test]
async fn maintenance() {
    let mut cases = Cases::new("maintenance");
    let dormouse = cases.dormouse();
    let sandbox = dormouse.create("base").name("maintained").await.unwrap();
    let on = On { dormouse, sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn metrics_document_and_authority_are_read(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    assert!(client.metrics().await?.contains("# TYPE dorm_operations_total counter"));
    assert_eq!(client.openapi().await?["info"]["title"], "Dormouse");
    assert!(client.authority().await?.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
    Ok(())
}

async fn events_are_read_from_any_number_on(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let page = client.events(Some(sandbox.id()), 0, None).await?;
    assert_eq!(kinds(&page.events), ["created", "started"]);
    let later = client.events(Some(sandbox.id()), page.events[0].number, None).await?;
    assert_eq!(kinds(&later.events), ["started"]);
    let newest = client.events(Some(sandbox.id()), 0, Some(1)).await?;
    assert_eq!(kinds(&newest.events), ["started"]);
    Ok(())
}

async fn events_of_one_sandbox_are_followed(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let mut events = sandbox.follow_events(0).await?;
    assert_eq!(events.next().await?.kind, "created");
    let started = events.next().await?;
    assert_eq!((started.kind.as_str(), events.position()), ("started", started.number));
    sandbox.suspend().await?;
    assert_eq!(events.next().await?.kind, "suspending");
    assert_eq!(events.next().await?.kind, "suspended");
    sandbox.resume().await?;
    Ok(())
}

async fn events_of_all_sandboxes_are_followed_from_the_last_one_on(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let last = sandbox.events().await?.last().unwrap().number;
    let mut events = dormouse.events(last).await?;
    let other = dormouse.create("base").await?;
    let event = events.next().await?;
    assert_eq!((event.sandbox.as_str(), event.kind.as_str()), (other.id(), "created"));
    other.terminate().await?;
    Ok(())
}

async fn events_after_a_lost_connection_continue(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let mut first = sandbox.follow_events(0).await?;
    let number = first.next().await?.number;
    drop(first);
    assert!(sandbox.follow_events(number).await?.next().await?.number > number);
    Ok(())
}

async fn operations_are_listed_and_found(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let operations = client.operations(Some(sandbox.id()), 10).await?;
    assert_eq!(operations[0].kind, "resume");
    let found = client.operation_within(&operations[0].id, 1).await?;
    assert_eq!((found.id.as_str(), found.status), (operations[0].id.as_str(), OperationStatus::Completed));
    assert_eq!(code_of(client.operation("aaaaaaaaaaaaaaaaaaaa").await), "not_found");
    Ok(())
}

async fn a_webhook_is_created_replayed_and_deleted(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let kinds = vec!["no_such_event".to_owned()];
    let url = "http://webhook.example.com/".to_owned();
    let created = client.create_webhook(&CreateWebhook { url, kinds: kinds.clone(), after: None }).await;
    let webhook = match created {
        Ok(webhook) => webhook,
        // Kinds are checked.
        Err(error) => {
            assert_eq!(error.code(), "invalid_argument");
            let (url, kinds) = ("http://webhook.example.com/".to_owned(), vec!["rewound".to_owned()]);
            client.create_webhook(&CreateWebhook { url, kinds, after: None }).await?
        }
    };
    assert!(webhook.secret.is_some());
    assert!(client.webhooks().await?.iter().all(|one| one.secret.is_none()));
    assert_eq!(client.replay_webhook(&webhook.id, 0).await?.id, webhook.id);
    client.delete_webhook(&webhook.id).await?;
    assert!(client.webhooks().await?.is_empty());
    Ok(())
}

async fn a_policy_for_checkpoints_is_set_and_removed(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let policy: SetCheckpoints = serde_json::from_value(serde_json::json!({ "every_secs": 3600.0 }))?;
    assert!(client.set_checkpoints(sandbox.id(), &policy).await?.checkpoints.is_some());
    let off = SetCheckpoints { off: true, ..SetCheckpoints::default() };
    assert!(client.set_checkpoints(sandbox.id(), &off).await?.checkpoints.is_none());
    Ok(())
}

async fn retention_is_changed(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let asked = SetRetention { keep_generations: Some(2), on_unrestorable: Some(OnUnrestorable::Fresh) };
    assert_eq!(client.set_retention(sandbox.id(), &asked).await?.keep_generations, 2);
    Ok(())
}

async fn usage_is_recorded(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    client.usage_history(sandbox.id(), Time::from_millis(0)).await?;
    assert!(sandbox.usage().await?.memory_bytes > 0);
    Ok(())
}

async fn what_is_on_disk_is_listed_and_verified(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let snapshot = sandbox.checkpoint(SnapshotKind::Filesystem).await?;
    let stored = client.stored().await?;
    let stored = stored.iter().find(|stored| stored.kind == "image").unwrap();
    assert_eq!(client.verify(stored).await?.files, []);
    assert!(client.items().await?.iter().all(|item| !item.verdict.is_empty()));
    client.collect(false).await?;
    assert_eq!(client.quarantine().await?.records, []);
    client.delete_snapshot(&snapshot.id, false).await?;
    Ok(())
}

async fn files_are_taken_out_of_a_memory_snapshot(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let client = on.dormouse.client();
    sandbox.files().write("/root/kept", "yes").await?;
    let memory = sandbox.checkpoint(SnapshotKind::Memory).await?;
    let files = client.snapshot_files(&memory.id).await?;
    assert_eq!(files.kind, SnapshotKind::Filesystem);
    let other = dormouse.restore(&files.id).env("A", "1").await?;
    assert_eq!(other.files().read_text("/root/kept").await?, "yes");
    other.terminate().await?;
    for id in [&files.id, &memory.id] {
        client.delete_snapshot(id, true).await?;
    }
    let none: BTreeMap<String, String> = BTreeMap::new();
    assert_eq!(files.labels, none);
    Ok(())
}
