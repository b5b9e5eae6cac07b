//! A name belongs to one living sandbox of a project.

use std::sync::Arc;

use dorm_lifecycle::{ProjectId, StateName};

use super::sample::{change_of, name, project, put, sandbox, sandbox_id, state, transition};
use crate::{SandboxRecord, Store, StoreError};

type Checked = Result<(), StoreError>;

async fn is_taken(store: &dyn Store, record: SandboxRecord, by: u32) {
    let wanted = record.sandbox.spec.name.clone();
    let refusal = store.commit(change_of(vec![record])).await;
    assert!(
        matches!(&refusal, Err(StoreError::NameTaken { name, holder })
            if Some(name) == wanted.as_ref() && *holder == sandbox_id(by)),
        "{refusal:?}"
    );
}

pub(super) async fn a_name_is_unique_among_the_living_of_a_project(store: Arc<dyn Store>) -> Checked {
    put(&*store, sandbox(1, Some("web"), StateName::Pending)).await?;
    is_taken(&*store, sandbox(2, Some("web"), StateName::Pending), 1).await;
    assert_eq!(store.sandbox(&sandbox_id(2)).await?, None);

    let mut elsewhere = sandbox(3, Some("web"), StateName::Pending);
    elsewhere.sandbox.project = project("elsewhere");
    put(&*store, elsewhere).await?;
    for number in 4..7 {
        put(&*store, sandbox(number, None, StateName::Pending)).await?;
    }
    let found = store.named(&project("elsewhere"), &name("web")).await?;
    assert_eq!(found.map(|record| record.sandbox.id), Some(sandbox_id(3)));
    Ok(())
}

pub(super) async fn a_name_is_kept_while_terminating_and_freed_by_terminated(store: Arc<dyn Store>) -> Checked {
    let mut holder = put(&*store, sandbox(1, Some("web"), StateName::Pending)).await?;
    for living in StateName::ALL.into_iter().filter(|state| *state != StateName::Terminated) {
        holder = transition(&*store, holder, living).await?;
        is_taken(&*store, sandbox(2, Some("web"), StateName::Pending), 1).await;
    }
    transition(&*store, holder, StateName::Terminated).await?;
    put(&*store, sandbox(2, Some("web"), StateName::Pending)).await?;
    let found = store.named(&ProjectId::local(), &name("web")).await?;
    assert_eq!(found.map(|record| record.sandbox.id), Some(sandbox_id(2)));
    Ok(())
}

pub(super) async fn a_name_can_be_taken_over_in_one_change(store: Arc<dyn Store>) -> Checked {
    let mut holder = put(&*store, sandbox(1, Some("web"), StateName::Terminating)).await?;
    holder.sandbox.state = state(StateName::Terminated);
    store.commit(change_of(vec![sandbox(2, Some("web"), StateName::Pending), holder])).await?;
    let found = store.named(&ProjectId::local(), &name("web")).await?;
    assert_eq!(found.map(|record| record.sandbox.id), Some(sandbox_id(2)));
    Ok(())
}

pub(super) async fn two_new_sandboxes_cannot_share_a_name_in_one_change(store: Arc<dyn Store>) -> Checked {
    let pair = [1, 2].map(|number| sandbox(number, Some("web"), StateName::Pending));
    let refusal = store.commit(change_of(pair.to_vec())).await;
    assert!(matches!(&refusal, Err(StoreError::NameTaken { holder, .. }) if *holder == sandbox_id(1)), "{refusal:?}");
    assert_eq!(store.named(&ProjectId::local(), &name("web")).await?, None);
    Ok(())
}

pub(super) async fn a_sandbox_keeps_its_own_name_through_its_life(store: Arc<dyn Store>) -> Checked {
    let mut record = put(&*store, sandbox(1, Some("web"), StateName::Pending)).await?;
    for to in StateName::ALL {
        record = transition(&*store, record, to).await?;
    }
    assert_eq!(store.sandbox(&sandbox_id(1)).await?, Some(record));
    Ok(())
}

pub(super) async fn only_the_living_are_found_by_name(store: Arc<dyn Store>) -> Checked {
    let find = async || store.named(&ProjectId::local(), &name("web")).await;
    assert_eq!(find().await?, None);
    let record = put(&*store, sandbox(1, Some("web"), StateName::Terminating)).await?;
    assert_eq!(find().await?, Some(record.clone()));
    transition(&*store, record, StateName::Terminated).await?;
    assert_eq!(find().await?, None);
    Ok(())
}

pub(super) async fn names_are_held_across_reopening(open: impl AsyncFn() -> Arc<dyn Store>) -> Checked {
    put(&*open().await, sandbox(1, Some("web"), StateName::Running)).await?;
    is_taken(&*open().await, sandbox(2, Some("web"), StateName::Pending), 1).await;
    Ok(())
}
