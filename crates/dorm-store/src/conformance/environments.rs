//! Environments are replaced as a whole, found by their key, and removed when a change says so. No
//! two of a project have the same key.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::environment::{Base, Key, Policy, Workspace};
use dorm_lifecycle::{EnvironmentId, Resources, SandboxId, SnapshotId};

use super::sample::{at, bytes, project};
use crate::{Change, EnvironmentRecord, Store, StoreError};

type Checked = Result<(), StoreError>;

fn key(text: &str) -> Key {
    Key::Own(text.to_owned())
}

pub(super) fn environment(number: u32) -> EnvironmentRecord {
    EnvironmentRecord {
        id: EnvironmentId::from_random(bytes(number)),
        project: project("local"),
        key: key(&format!("key-{number}")),
        client_key: None,
        workspace: Workspace {
            base: Base::Snapshot(SnapshotId::from_random(bytes(number))),
            resources: Resources::default(),
            egress: None,
            variables: Default::default(),
            directory: "/workspace".to_owned(),
            user: None,
            code: None,
            setup: Vec::new(),
            start: None,
            ready: None,
            step_limit: Duration::from_secs(60),
        },
        policy: Policy::default(),
        secrets: Default::default(),
        values: Default::default(),
        labels: Default::default(),
        sandbox: None,
        snapshot: None,
        commit: None,
        attempt: None,
        last: None,
        leases: Vec::new(),
        ending: None,
        retired: Vec::new(),
        created: at(1_000),
        removed: false,
    }
}

fn write(environments: &[EnvironmentRecord]) -> Change {
    Change { environments: environments.to_vec(), ..Change::default() }
}

pub(super) async fn an_environment_is_rewritten_found_by_its_key_and_removed(store: Arc<dyn Store>) -> Checked {
    let local = project("local");
    store.commit(write(&[environment(2), environment(1)])).await?;
    assert_eq!(store.environments().await?, [environment(1), environment(2)]);
    assert_eq!(store.environment(&environment(2).id).await?, Some(environment(2)));
    assert_eq!(store.environment(&environment(77).id).await?, None);
    assert_eq!(store.environment_with(&local, &key("key-2")).await?, Some(environment(2)));
    assert_eq!(store.environment_with(&local, &key("key-77")).await?, None);
    assert_eq!(store.environment_with(&project("other"), &key("key-2")).await?, None);
    let ready = EnvironmentRecord { sandbox: Some(SandboxId::from_random(bytes(9))), ..environment(1) };
    let removed = vec![environment(2).id, environment(77).id];
    store.commit(Change { removed_environments: removed, ..write(std::slice::from_ref(&ready)) }).await?;
    assert_eq!(store.environments().await?, [ready]);
    assert_eq!(store.environment_with(&local, &key("key-2")).await?, None);
    Ok(())
}

pub(super) async fn a_key_of_an_environment_is_unique_in_its_project(store: Arc<dyn Store>) -> Checked {
    store.commit(write(&[environment(1)])).await?;
    let same = EnvironmentRecord { key: environment(1).key, ..environment(2) };
    let refused = store.commit(write(&[environment(3), same.clone()])).await;
    let is_taken = matches!(&refused, Err(StoreError::KeyTaken { holder, .. }) if *holder == environment(1).id);
    assert!(is_taken, "{refused:?}");
    assert_eq!(store.environments().await?, [environment(1)], "nothing of the change was made");
    let elsewhere = EnvironmentRecord { project: project("other"), ..same.clone() };
    store.commit(write(&[elsewhere])).await?;
    // One that gives its key up makes room for another.
    let given_up = EnvironmentRecord { key: Key::Once(environment(1).id), removed: true, ..environment(1) };
    store.commit(write(std::slice::from_ref(&given_up))).await?;
    let newest = EnvironmentRecord { id: EnvironmentId::from_random(bytes(4)), ..same };
    store.commit(write(std::slice::from_ref(&newest))).await?;
    assert_eq!(store.environment_with(&newest.project, &newest.key).await?, Some(newest));
    Ok(())
}
