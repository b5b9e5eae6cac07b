//! Events are numbered in the order in which they become visible.

use std::sync::Arc;

use dorm_lifecycle::Initiator;

use super::sample::{event, project, sandbox_id};
use crate::{Change, EventFilter, NewEvent, Store, StoreError};

type Checked = Result<(), StoreError>;

async fn record(store: &dyn Store, events: Vec<NewEvent>) -> Result<Vec<u64>, StoreError> {
    let numbered = store.commit(Change { events: events.clone(), ..Change::default() }).await?;
    assert_eq!(numbered.iter().map(|record| record.event.clone()).collect::<Vec<_>>(), events);
    Ok(numbered.into_iter().map(|record| record.number).collect())
}

async fn numbers(store: &dyn Store, filter: EventFilter) -> Result<Vec<u64>, StoreError> {
    Ok(store.events(&filter).await?.into_iter().map(|record| record.number).collect())
}

pub(super) async fn events_are_numbered_from_one_without_gaps(store: Arc<dyn Store>) -> Checked {
    assert_eq!(record(&*store, vec![event(1, "a"), event(2, "b")]).await?, [1, 2]);
    assert_eq!(record(&*store, vec![event(1, "c")]).await?, [3]);
    assert_eq!(record(&*store, vec![event(3, "d"), event(3, "d")]).await?, [4, 5]);
    let all = store.events(&EventFilter::default()).await?;
    let told: Vec<_> = all.iter().map(|record| (record.number, record.event.detail.as_deref())).collect();
    assert_eq!(told, [(1, Some("a")), (2, Some("b")), (3, Some("c")), (4, Some("d")), (5, Some("d"))]);
    Ok(())
}

pub(super) async fn events_are_read_after_a_number_and_up_to_a_limit(store: Arc<dyn Store>) -> Checked {
    record(&*store, (0..10).map(|number| event(number, "x")).collect()).await?;
    let read = async |after, limit| numbers(&*store, EventFilter { after, limit, ..EventFilter::default() }).await;
    assert_eq!(read(0, 0).await?, (1..=10).collect::<Vec<_>>());
    assert_eq!(read(0, 3).await?, [1, 2, 3]);
    assert_eq!(read(3, 3).await?, [4, 5, 6]);
    assert_eq!(read(8, 3).await?, [9, 10]);
    assert_eq!(read(10, usize::MAX).await?, Vec::<u64>::new());
    assert_eq!(read(u64::MAX, 0).await?, Vec::<u64>::new());
    let newest = async |after, limit, newest| {
        numbers(&*store, EventFilter { after, limit, newest, ..EventFilter::default() }).await
    };
    assert_eq!(newest(0, 0, 3).await?, [8, 9, 10]);
    assert_eq!(newest(9, 0, 3).await?, [10]);
    assert_eq!(newest(0, 2, 3).await?, [8, 9]);
    assert_eq!(newest(0, 0, 30).await?, (1..=10).collect::<Vec<_>>());
    Ok(())
}

pub(super) async fn events_are_filtered_by_sandbox_and_project(store: Arc<dyn Store>) -> Checked {
    let elsewhere = |of| NewEvent { project: project("elsewhere"), ..event(of, "e") };
    record(&*store, vec![event(1, "a"), event(2, "b"), elsewhere(3), event(1, "c"), elsewhere(3)]).await?;
    let all = EventFilter::default();
    assert_eq!(numbers(&*store, EventFilter { sandbox: Some(sandbox_id(1)), ..all.clone() }).await?, [1, 4]);
    let later = EventFilter { sandbox: Some(sandbox_id(1)), after: 1, limit: 1, ..all.clone() };
    assert_eq!(numbers(&*store, later).await?, [4]);
    assert_eq!(numbers(&*store, EventFilter { project: Some(project("elsewhere")), ..all.clone() }).await?, [3, 5]);
    let neither = EventFilter { project: Some(project("elsewhere")), sandbox: Some(sandbox_id(1)), ..all };
    assert_eq!(numbers(&*store, neither).await?, Vec::<u64>::new());
    Ok(())
}

pub(super) async fn events_keep_their_callers(store: Arc<dyn Store>) -> Checked {
    let asked = event(1, "a");
    let by_itself = NewEvent { initiator: Initiator::Timer, caller: None, ..event(1, "b") };
    record(&*store, vec![asked.clone(), by_itself.clone()]).await?;
    let read: Vec<_> = store.events(&EventFilter::default()).await?.into_iter().map(|record| record.event).collect();
    assert_eq!(read, [asked, by_itself]);
    Ok(())
}

pub(super) async fn numbers_of_events_rise_across_reopening(open: impl AsyncFn() -> Arc<dyn Store>) -> Checked {
    for first in [1, 3, 5] {
        let store = open().await;
        assert_eq!(record(&*store, vec![event(1, "a"), event(2, "b")]).await?, [first, first + 1]);
    }
    assert_eq!(numbers(&*open().await, EventFilter::default()).await?, [1, 2, 3, 4, 5, 6]);
    Ok(())
}
