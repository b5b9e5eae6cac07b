//! Lists hold what was requested, in the order of ids, in pages that fit together.

use std::sync::Arc;

use dorm_lifecycle::{SandboxId, StateName, Timestamp};

use super::sample::{name, project, put, sandbox, sandbox_id};
use crate::{Direction, SandboxFilter, SandboxOrder, SandboxRecord, Store, StoreError};

type Checked = Result<(), StoreError>;

async fn ids(store: &dyn Store, filter: SandboxFilter) -> Result<Vec<SandboxId>, StoreError> {
    Ok(store.sandboxes(&filter).await?.into_iter().map(|record| record.sandbox.id).collect())
}

fn sorted(numbers: impl IntoIterator<Item = u32>) -> Vec<SandboxId> {
    let mut ids: Vec<_> = numbers.into_iter().map(sandbox_id).collect();
    ids.sort();
    ids
}

/// Twenty-four sandboxes: three in each state; every second one of the project `other`, every third
/// one with a name, each with a label `number` and every fourth one with `colour=red`.
async fn fill(store: &dyn Store) -> Result<Vec<SandboxRecord>, StoreError> {
    let mut records = Vec::new();
    for number in [23, 5, 17, 2, 11, 0, 8, 20, 14, 1, 22, 9, 3, 16, 6, 12, 19, 4, 7, 21, 10, 15, 13, 18] {
        let called = format!("web-{number}");
        let mut record =
            sandbox(number, (number % 3 == 0).then_some(called.as_str()), StateName::ALL[number as usize % 8]);
        if number % 2 == 0 {
            record.sandbox.project = project("other");
        }
        record.sandbox.spec.labels.insert("number".to_owned(), number.to_string());
        if number % 4 == 0 {
            record.sandbox.spec.labels.insert("colour".to_owned(), "red".to_owned());
        }
        records.push(put(store, record).await?);
    }
    records.sort_by_key(|record| record.sandbox.id.clone());
    Ok(records)
}

pub(super) async fn sandboxes_are_listed_in_the_order_of_their_ids(store: Arc<dyn Store>) -> Checked {
    let records = fill(&*store).await?;
    assert_eq!(store.sandboxes(&SandboxFilter::default()).await?, records);
    Ok(())
}

pub(super) async fn each_filter_keeps_what_it_names(store: Arc<dyn Store>) -> Checked {
    fill(&*store).await?;
    let all = SandboxFilter::default();
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());

    let of_other = SandboxFilter { project: Some(project("other")), ..all.clone() };
    assert_eq!(ids(&*store, of_other).await?, sorted((0..24).filter(|number| number % 2 == 0)));
    let states = vec![StateName::Running, StateName::Terminated, StateName::Running];
    let in_states = SandboxFilter { states, ..all.clone() };
    assert_eq!(ids(&*store, in_states).await?, sorted([1, 9, 17, 7, 15, 23]));
    // A name also finds terminated sandboxes: 15 is terminated.
    let called = SandboxFilter { name: Some(name("web-15")), ..all.clone() };
    assert_eq!(ids(&*store, called).await?, sorted([15]));
    let red = SandboxFilter { labels: vec![label("colour", "red")], ..all.clone() };
    assert_eq!(ids(&*store, red).await?, sorted([0, 4, 8, 12, 16, 20]));
    let red_eight = SandboxFilter { labels: vec![label("colour", "red"), label("number", "8")], ..all.clone() };
    assert_eq!(ids(&*store, red_eight).await?, sorted([8]));
    for nothing in [
        SandboxFilter { project: Some(project("nobody")), ..all.clone() },
        SandboxFilter { name: Some(name("nobody")), ..all.clone() },
        SandboxFilter { labels: vec![label("colour", "Red")], ..all.clone() },
        SandboxFilter { labels: vec![label("colour", "%")], ..all.clone() },
        SandboxFilter { labels: vec![label("number", "8"), label("number", "9")], ..all.clone() },
    ] {
        assert_eq!(ids(&*store, nothing).await?, []);
    }
    Ok(())
}

pub(super) async fn filters_hold_together(store: Arc<dyn Store>) -> Checked {
    fill(&*store).await?;
    let filter = SandboxFilter {
        project: Some(project("other")),
        states: vec![StateName::Pending, StateName::Suspended],
        name: None,
        labels: vec![("colour".to_owned(), "red".to_owned())],
        after: Some(sorted([0, 4, 8, 12, 16, 20])[0].clone()),
        limit: 2,
        ..SandboxFilter::default()
    };
    assert_eq!(ids(&*store, filter).await?, sorted([0, 4, 8, 12, 16, 20])[1..3]);
    Ok(())
}

pub(super) async fn pages_cover_everything_once(store: Arc<dyn Store>) -> Checked {
    let records = fill(&*store).await?;
    for limit in [1, 5, 23, 24, 25, usize::MAX] {
        let mut pages = Vec::new();
        let mut after = None;
        loop {
            let page = store.sandboxes(&SandboxFilter { after, limit, ..SandboxFilter::default() }).await?;
            assert!(page.len() <= limit, "a page of {} for {limit}", page.len());
            let Some(last) = page.last() else { break };
            after = Some(last.sandbox.id.clone());
            pages.extend(page);
        }
        assert_eq!(pages, records, "in pages of {limit}");
    }
    Ok(())
}

/// Twelve sandboxes, two for each moment; the ones with an odd number never ran.
async fn fill_in_time(store: &dyn Store) -> Result<Vec<SandboxRecord>, StoreError> {
    let mut records = Vec::new();
    for number in 0..12 {
        let mut record = sandbox(number, None, StateName::Terminated);
        record.sandbox.created = Timestamp::from_millis(1_000 * u64::from(number / 2));
        record.sandbox.started =
            (number % 2 == 0).then(|| Timestamp::from_millis(9_000_000_000_000_000_000 - u64::from(number)));
        records.push(put(store, record).await?);
    }
    Ok(records)
}

pub(super) async fn sandboxes_are_listed_in_the_order_of_moments(store: Arc<dyn Store>) -> Checked {
    let records = fill_in_time(&*store).await?;
    for direction in [Direction::Ascending, Direction::Descending] {
        for order in [SandboxOrder::Created(direction), SandboxOrder::Started(direction)] {
            let mut wanted = records.clone();
            wanted.sort_by_key(|record| (order.moment(&record.sandbox), record.sandbox.id.clone()));
            if order.is_descending() {
                wanted.reverse();
            }
            let wanted: Vec<_> = wanted.into_iter().map(|record| record.sandbox.id).collect();
            let all = SandboxFilter { order, ..SandboxFilter::default() };
            assert_eq!(ids(&*store, all.clone()).await?, wanted, "{order:?}");
            // Pages fit together, also when a sandbox is added meanwhile.
            let (mut page, mut found) = (SandboxFilter { limit: 5, ..all }, Vec::new());
            loop {
                let next = store.sandboxes(&page).await?;
                found.extend(next.iter().map(|record| record.sandbox.id.clone()));
                let Some(last) = next.last().filter(|_| next.len() == 5) else { break };
                (page.after, page.after_moment) = (Some(last.sandbox.id.clone()), order.moment(&last.sandbox));
            }
            assert_eq!(found, wanted, "{order:?}");
        }
    }
    Ok(())
}
