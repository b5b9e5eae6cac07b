//! Concurrent callers lose nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dorm_lifecycle::{ProjectId, StateName};
use tokio::task::{JoinSet, yield_now};

use super::sample::{at, event, name, put, sandbox, sandbox_id};
use super::snapshots::named;
use crate::{Change, EventFilter, SandboxFilter, Store, StoreError};

type Checked = Result<(), StoreError>;

const TASKS: u32 = 8;
const ROUNDS: u32 = 6;

/// Runs one task for each of eight numbers and waits for all.
async fn eight<F>(work: impl Fn(u32) -> F) -> Checked
where
    F: Future<Output = Checked> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        tasks.spawn(work(number));
    }
    for ended in tasks.join_all().await {
        ended?;
    }
    Ok(())
}

async fn numbers(store: &dyn Store) -> Result<Vec<u64>, StoreError> {
    Ok(store.events(&EventFilter::default()).await?.into_iter().map(|record| record.number).collect())
}

pub(super) async fn eight_tasks_on_different_records_lose_nothing(store: Arc<dyn Store>) -> Checked {
    eight(|task| {
        let store = Arc::clone(&store);
        async move {
            let mut record = sandbox(task, None, StateName::Running);
            for round in 0..ROUNDS {
                record.revision = u64::from(round);
                let change = Change {
                    sandboxes: vec![record.clone()],
                    events: vec![event(task, &round.to_string())],
                    ..Change::default()
                };
                store.commit(change).await?;
            }
            Ok(())
        }
    })
    .await?;
    let revisions: Vec<_> =
        store.sandboxes(&SandboxFilter::default()).await?.into_iter().map(|record| record.revision).collect();
    assert_eq!(revisions, vec![u64::from(ROUNDS); TASKS as usize]);
    assert_eq!(numbers(&*store).await?, (1..=u64::from(TASKS * ROUNDS)).collect::<Vec<_>>());
    for task in 0..TASKS {
        let filter = EventFilter { sandbox: Some(sandbox_id(task)), ..EventFilter::default() };
        let told: Vec<_> = store.events(&filter).await?.into_iter().map(|record| record.event.detail).collect();
        assert_eq!(told, (0..ROUNDS).map(|round| Some(round.to_string())).collect::<Vec<_>>());
    }
    Ok(())
}

pub(super) async fn eight_tasks_on_one_record_lose_nothing(store: Arc<dyn Store>) -> Checked {
    put(&*store, sandbox(1, None, StateName::Running)).await?;
    eight(|task| {
        let store = Arc::clone(&store);
        async move {
            let mut done = 0;
            while done < ROUNDS {
                let Some(mut record) = store.sandbox(&sandbox_id(1)).await? else {
                    return Err(StoreError::Missing(sandbox_id(1).to_string()));
                };
                record.sandbox.last_active = at(record.sandbox.last_active.as_millis() + 1);
                let change =
                    Change { sandboxes: vec![record], events: vec![event(1, &task.to_string())], ..Change::default() };
                match store.commit(change).await {
                    Ok(_) => done += 1,
                    Err(StoreError::Stale { .. }) => yield_now().await,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
    })
    .await?;
    let total = u64::from(TASKS * ROUNDS);
    let record = store.sandbox(&sandbox_id(1)).await?;
    let before = sandbox(1, None, StateName::Running).sandbox.last_active.as_millis();
    assert_eq!(
        record.map(|record| (record.revision, record.sandbox.last_active)),
        Some((total + 1, at(before + total)))
    );
    assert_eq!(numbers(&*store).await?, (1..=total).collect::<Vec<_>>());
    Ok(())
}

pub(super) async fn eight_tasks_that_want_one_name_leave_one_holder(store: Arc<dyn Store>) -> Checked {
    eight(|task| {
        let store = Arc::clone(&store);
        async move {
            match put(&*store, sandbox(task, Some("web"), StateName::Pending)).await {
                Ok(_) => Ok(()),
                Err(StoreError::NameTaken { holder, .. }) => {
                    let found = store.named(&ProjectId::local(), &name("web")).await?;
                    assert_eq!(found.map(|record| record.sandbox.id), Some(holder));
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
    })
    .await?;
    assert_eq!(store.sandboxes(&SandboxFilter::default()).await?.len(), 1);
    Ok(())
}

pub(super) async fn eight_snapshots_that_want_one_name_leave_one_holder(store: Arc<dyn Store>) -> Checked {
    eight(|task| {
        let store = Arc::clone(&store);
        async move {
            let snapshots = vec![named(task, "my-snap")];
            match store.commit(Change { snapshots, ..Change::default() }).await {
                Ok(_) => Ok(()),
                Err(StoreError::SnapshotNameTaken { holder, .. }) => {
                    assert!(store.snapshot(&holder).await?.is_some());
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
    })
    .await?;
    assert_eq!(store.snapshots(None).await?.len(), 1);
    Ok(())
}

/// A number must not become visible before a lower one is: a reader that continues after the last
/// number it saw would miss it.
pub(super) async fn a_reader_that_follows_the_events_misses_none(store: Arc<dyn Store>) -> Checked {
    let written = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (store, written) = (Arc::clone(&store), Arc::clone(&written));
        async move {
            let mut seen: Vec<u64> = Vec::new();
            loop {
                let is_last = written.load(Ordering::SeqCst);
                let after = seen.last().copied().unwrap_or_default();
                let filter = EventFilter { after, limit: 3, ..EventFilter::default() };
                let page = store.events(&filter).await?;
                if page.is_empty() && is_last {
                    return Ok::<_, StoreError>(seen);
                }
                seen.extend(page.into_iter().map(|record| record.number));
                yield_now().await;
            }
        }
    });
    let outcome = eight(|task| {
        let store = Arc::clone(&store);
        async move {
            for round in 0..ROUNDS {
                let pair = vec![event(task, &round.to_string()), event(task, "and")];
                store.commit(Change { events: pair, ..Change::default() }).await?;
            }
            Ok(())
        }
    })
    .await;
    written.store(true, Ordering::SeqCst);
    let seen = reader.await.expect("the reader did not panic")?;
    outcome?;
    assert_eq!(seen, (1..=u64::from(2 * TASKS * ROUNDS)).collect::<Vec<_>>());
    Ok(())
}
