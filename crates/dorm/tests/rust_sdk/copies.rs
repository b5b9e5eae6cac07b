//! Snapshots and copies.

use anyhow::Result;
use dorm_client::Dormouse;
use dorm_client::Sandbox;
use std::collections::BTreeMap;

use dorm_client::types::{self, DiffChange, Keep, SnapshotKind, State, TreeKind};
use futures_util::StreamExt as _;

use crate::cases::{Cases, code_of, error_of};

fn keep_none() -> types::PromoteRequest {
    types::PromoteRequest { keep: Some(Keep::None), ..types::PromoteRequest::default() }
}

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    sandbox: Sandbox,
}

crate::cases::area! {
    a_snapshot_of_files_starts_a_sandbox_with_them,
    a_snapshot_of_memory_continues_with_its_processes,
    a_snapshot_has_a_name_and_labels_and_stands_for_an_image,
    snapshots_are_listed_by_their_source,
    a_clone_is_a_copy_with_settings_of_its_own,
    a_fork_creates_children_that_differ_from_then_on,
    children_can_have_names_and_variables,
    a_child_that_cannot_be_created_is_an_error_of_its_own,
    a_rewind_takes_files_and_processes_back,
    a_rewind_needs_a_snapshot_of_the_sandbox,
    a_child_replaces_its_parent,
    a_sandbox_without_a_parent_cannot_be_promoted,
    differences_of_files_are_listed,
    the_tree_has_parents_and_children,
    a_snapshot_moves_as_a_file,
    a_terminated_sandbox_is_created_again_from_its_snapshot,
}

#[tokio::test]
async fn copies() {
    let mut cases = Cases::new("copies");
    let dormouse = cases.dormouse();
    let sandbox = dormouse.create("base").name("source").label("a", "1").await.unwrap();
    sandbox.files().write("/work/file", "one").await.unwrap();
    let on = On { dormouse, sandbox };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_snapshot_of_files_starts_a_sandbox_with_them(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let client = on.dormouse.client();
    let snapshot = sandbox.checkpoint(SnapshotKind::Filesystem).await?;
    assert_eq!((snapshot.kind, snapshot.source.as_str()), (SnapshotKind::Filesystem, sandbox.id()));
    let other = dormouse.restore(&snapshot.id).await?;
    assert_eq!(other.files().read_text("/work/file").await?, "one");
    other.terminate().await?;
    client.delete_snapshot(&snapshot.id, false).await?;
    Ok(())
}

async fn a_snapshot_of_memory_continues_with_its_processes(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let client = on.dormouse.client();
    let process = sandbox.start("read line; echo got $line").stdin().await?;
    let snapshot = sandbox.checkpoint(SnapshotKind::Memory).await?;
    let other = dormouse.restore(&snapshot.id).await?;
    let copy = other.process(process.handle());
    copy.write("hello\n").await?;
    assert_eq!(copy.result().await?.stdout, b"got hello\n");
    assert_eq!(process.info().await?.exit, None);
    process.kill().await?;
    other.terminate().await?;
    client.delete_snapshot(&snapshot.id, false).await?;
    Ok(())
}

async fn a_snapshot_has_a_name_and_labels_and_stands_for_an_image(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let client = on.dormouse.client();
    let asked = types::CheckpointRequest {
        name: Some("named:v1".to_owned()),
        labels: BTreeMap::from([("l".to_owned(), "x".to_owned())]),
        expires_secs: Some(3600.0),
        ..types::CheckpointRequest::default()
    };
    let snapshot = sandbox.checkpoint_with(&asked).await?;
    assert_eq!(snapshot.labels["l"], "x");
    assert!(snapshot.expires_at.is_some());
    assert_eq!(client.snapshot("named:v1").await?.id, snapshot.id);
    let other = dormouse.create("named:v1").await?;
    assert_eq!(other.info().await?.snapshot, Some(snapshot.id.clone()));
    other.terminate().await?;
    client.delete_snapshot("named:v1", false).await?;
    assert_eq!(code_of(client.snapshot(&snapshot.id).await), "not_found");
    Ok(())
}

async fn snapshots_are_listed_by_their_source(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let client = on.dormouse.client();
    let snapshot = sandbox.checkpoint(SnapshotKind::Filesystem).await?;
    assert!(sandbox.snapshots().await?.iter().any(|one| one.id == snapshot.id));
    assert!(dormouse.sandbox("aaaaaaaaaaaaaaaaaaaa").snapshots().await?.is_empty());
    client.delete_snapshot(&snapshot.id, false).await?;
    Ok(())
}

async fn a_clone_is_a_copy_with_settings_of_its_own(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let asked = types::CloneRequest {
        name: Some("copy".to_owned()),
        labels: BTreeMap::from([("b".to_owned(), "2".to_owned())]),
        ..types::CloneRequest::default()
    };
    let cloned = sandbox.clone_(&asked).await?;
    let info = cloned.sandbox.info().await?;
    assert_eq!((info.name.as_deref(), info.labels.len()), (Some("copy"), 2));
    assert_eq!(info.snapshot, Some(cloned.snapshot.id.clone()));
    cloned.sandbox.files().write("/work/file", "two").await?;
    assert_eq!(sandbox.files().read_text("/work/file").await?, "one");
    cloned.sandbox.terminate().await?;
    client.delete_snapshot(&cloned.snapshot.id, true).await?;
    Ok(())
}

async fn a_fork_creates_children_that_differ_from_then_on(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let children = sandbox.fork(3).await?;
    assert_eq!(children.len(), 3);
    for (number, child) in children.iter().enumerate() {
        child.files().write("/work/file", number.to_string()).await?;
    }
    for (number, child) in children.iter().enumerate() {
        assert_eq!(child.files().read_text("/work/file").await?, number.to_string());
        assert_eq!(child.info().await?.source.as_deref(), Some(sandbox.id()));
        child.terminate().await?;
    }
    Ok(())
}

async fn children_can_have_names_and_variables(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let child = |name: &str| types::ForkChild {
        name: Some(name.to_owned()),
        env: BTreeMap::from([("WHO".to_owned(), name.to_owned())]),
        ..types::ForkChild::default()
    };
    let asked = types::ForkRequest { children: vec![child("ann"), child("bob")], ..types::ForkRequest::default() };
    for (child, name) in sandbox.fork_with(&asked).await?.into_iter().zip(["ann", "bob"]) {
        let child = child?;
        assert_eq!(child.exec("echo $WHO").await?.stdout_text(), format!("{name}\n"));
        child.terminate().await?;
    }
    Ok(())
}

async fn a_child_that_cannot_be_created_is_an_error_of_its_own(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let child = |name: &str| types::ForkChild { name: Some(name.to_owned()), ..types::ForkChild::default() };
    let children = vec![child("fresh"), child("source")];
    let kept = types::ForkRequest { children: children.clone(), ..types::ForkRequest::default() };
    // A name that is taken is found before anything is created, or reported for its child.
    match sandbox.fork_with(&kept).await {
        Ok(results) => {
            for result in results {
                match result {
                    Ok(child) => drop(child.terminate().await?),
                    Err(error) => assert_eq!(error.code(), "conflict"),
                }
            }
        }
        Err(error) => assert_eq!(error.code(), "conflict"),
    }
    let on_partial_failure = types::OnPartialFailure::RollBack;
    let none = types::ForkRequest { children, on_partial_failure, ..types::ForkRequest::default() };
    assert_eq!(error_of(sandbox.fork_with(&none).await).code(), "conflict");
    assert_eq!(code_of(dormouse.connect("fresh").await), "not_found");
    Ok(())
}

async fn a_rewind_takes_files_and_processes_back(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let client = on.dormouse.client();
    let snapshot = sandbox.checkpoint(SnapshotKind::Memory).await?;
    sandbox.files().write("/work/file", "later").await?;
    let rewound = sandbox.rewind(&snapshot.id).await?;
    assert_eq!(rewound.sandbox.id(), sandbox.id());
    assert_eq!(sandbox.files().read_text("/work/file").await?, "one");
    let future = rewound.future.unwrap();
    sandbox.rewind(&future).await?;
    assert_eq!(sandbox.files().read_text("/work/file").await?, "later");
    let back =
        types::RewindRequest { to: snapshot.id.clone(), keep: Some(Keep::None), ..types::RewindRequest::default() };
    assert_eq!(sandbox.rewind_with(&back).await?.future, None);
    for one in sandbox.snapshots().await? {
        client.delete_snapshot(&one.id, true).await?;
    }
    Ok(())
}

async fn a_rewind_needs_a_snapshot_of_the_sandbox(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    assert_eq!(code_of(sandbox.rewind("aaaaaaaaaaaaaaaaaaaa").await), "not_found");
    Ok(())
}

async fn a_child_replaces_its_parent(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let child = sandbox.fork(1).await?.remove(0);
    child.files().write("/work/file", "better").await?;
    let promoted = child.promote(&keep_none()).await?;
    assert_eq!((promoted.sandbox.id(), promoted.future), (sandbox.id(), None));
    assert_eq!(sandbox.files().read_text("/work/file").await?, "better");
    assert_eq!(child.state().await?, State::Terminated);
    sandbox.files().write("/work/file", "one").await?;
    Ok(())
}

async fn a_sandbox_without_a_parent_cannot_be_promoted(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    assert_eq!(code_of(sandbox.promote(&keep_none()).await), "conflict");
    Ok(())
}

async fn differences_of_files_are_listed(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let client = on.dormouse.client();
    let snapshot = sandbox.checkpoint(SnapshotKind::Filesystem).await?;
    sandbox.files().write("/work/new", "x").await?;
    sandbox.files().write("/work/file", "changed").await?;
    let diff = sandbox.diff(&snapshot.id).await?;
    let of = |path: &str| diff.changes.iter().find(|entry| entry.path.to_string() == path).unwrap();
    assert_eq!(of("/work/new").change, DiffChange::Added);
    assert_eq!((of("/work/file").change, of("/work/file").after_bytes), (DiffChange::Modified, Some(7)));
    let back = dormouse.diff(sandbox.id(), &snapshot.id).await?;
    assert!(back.changes.iter().any(|entry| entry.change == DiffChange::Removed));
    client.delete_snapshot(&snapshot.id, false).await?;
    Ok(())
}

async fn the_tree_has_parents_and_children(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let child = sandbox.fork(1).await?.remove(0);
    let tree = sandbox.tree().await?;
    let node = tree.nodes.iter().find(|node| node.id == child.id()).unwrap();
    assert_eq!(node.kind, TreeKind::Sandbox);
    assert!(node.depth > 0);
    assert!(dormouse.tree(false).await?.nodes.iter().any(|node| node.id == sandbox.id()));
    child.terminate().await?;
    Ok(())
}

async fn a_snapshot_moves_as_a_file(on: &On) -> Result<()> {
    let On { dormouse, sandbox } = on;
    let client = on.dormouse.client();
    let snapshot = sandbox.checkpoint(SnapshotKind::Filesystem).await?;
    let file = client.export_snapshot(&snapshot.id).await?;
    let file = file.map(|piece| piece.map_err(std::io::Error::other));
    let labels = BTreeMap::from([("moved".to_owned(), "yes".to_owned())]);
    let imported = client.import_snapshot(&labels, Some(3600.0), None, file).await?;
    assert_eq!(imported.labels["moved"], "yes");
    let other = dormouse.restore(&imported.id).await?;
    assert!(other.files().exists("/work/file").await?);
    other.terminate().await?;
    for id in [&snapshot.id, &imported.id] {
        client.delete_snapshot(id, false).await?;
    }
    Ok(())
}

async fn a_terminated_sandbox_is_created_again_from_its_snapshot(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let client = on.dormouse.client();
    let other = dormouse.create("base").name("phoenix").await?;
    other.files().write("/root/ashes", "yes").await?;
    let snapshot = other.checkpoint(SnapshotKind::Filesystem).await?;
    other.terminate().await?;
    let again = other.restart().await?;
    assert_eq!(again.files().read_text("/root/ashes").await?, "yes");
    assert_eq!(again.info().await?.name.as_deref(), Some("phoenix"));
    again.terminate().await?;
    client.delete_snapshot(&snapshot.id, true).await?;
    Ok(())
}
