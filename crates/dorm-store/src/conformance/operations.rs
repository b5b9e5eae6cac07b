//! An operation is listed as open until it ends.

use std::sync::Arc;

use super::sample::{at, operation, sandbox_id};
use crate::{Change, Code, FailureRecord, OperationFilter, OperationRecord, OperationResult, Store, StoreError};

type Checked = Result<(), StoreError>;

async fn write(store: &dyn Store, operations: Vec<OperationRecord>) -> Checked {
    store.commit(Change { operations, ..Change::default() }).await.map(drop)
}

pub(super) async fn an_operation_is_open_until_it_has_ended(store: Arc<dyn Store>) -> Checked {
    let mut first = operation(1, 1_000);
    let mut second = operation(2, 2_000);
    second.sandbox = None;
    second.saved_state = None;
    write(&*store, vec![first.clone(), second.clone()]).await?;
    assert_eq!(store.open_operations().await?, [first.clone(), second.clone()]);

    first.deadline = at(99_000);
    write(&*store, vec![first.clone()]).await?;
    assert_eq!(store.open_operations().await?, [first.clone(), second.clone()]);

    first.ended = Some((at(5_000), OperationResult::Done));
    write(&*store, vec![first]).await?;
    assert_eq!(store.open_operations().await?, [second.clone()]);

    second.ended = Some((at(6_000), OperationResult::Failed(FailureRecord::new(Code::Failed, "no"))));
    write(&*store, vec![second]).await?;
    assert_eq!(store.open_operations().await?, []);
    Ok(())
}

pub(super) async fn open_operations_come_in_the_order_they_began(store: Arc<dyn Store>) -> Checked {
    for (number, began) in [(3, 2_000), (1, 3_000), (4, 1_000), (2, 2_000), (5, u64::MAX - 60_000)] {
        write(&*store, vec![operation(number, began)]).await?;
    }
    let open = store.open_operations().await?;
    let mut expected = open.clone();
    expected.sort_by_key(|operation| (operation.began, operation.id.clone()));
    assert_eq!((open.len(), open), (5, expected));
    Ok(())
}

pub(super) async fn an_operation_is_found_by_its_id(store: Arc<dyn Store>) -> Checked {
    let open = operation(1, 1_000);
    let mut ended = operation(2, 2_000);
    ended.ended = Some((at(5_000), OperationResult::Done));
    write(&*store, vec![open.clone(), ended.clone()]).await?;
    for written in [open, ended] {
        assert_eq!(store.operation(&written.id).await?, Some(written));
    }
    assert_eq!(store.operation(&operation(3, 0).id).await?, None);
    Ok(())
}

pub(super) async fn operations_of_a_sandbox_are_listed_newest_first(store: Arc<dyn Store>) -> Checked {
    let mut all: Vec<_> = [(1, 2_000), (2, 3_000), (3, 1_000)].map(|(number, began)| operation(number, began)).into();
    all.iter_mut().for_each(|operation| operation.sandbox = Some(sandbox_id(9)));
    let mut of_none = operation(4, 4_000);
    of_none.sandbox = None;
    write(&*store, [all.clone(), vec![of_none.clone(), operation(5, 5_000)]].concat()).await?;
    let filter = OperationFilter { sandbox: Some(sandbox_id(9)), ..OperationFilter::default() };
    all.sort_by_key(|operation| std::cmp::Reverse(operation.began));
    assert_eq!(store.find_operations(&filter).await?, all);
    let newest = OperationFilter { limit: 2, ..OperationFilter::default() };
    assert_eq!(store.find_operations(&newest).await?, [operation(5, 5_000), of_none]);
    Ok(())
}

pub(super) async fn pages_of_operations_cover_everything_once(store: Arc<dyn Store>) -> Checked {
    let mut all: Vec<_> = (0..10).map(|number| operation(number, 1_000 + u64::from(number % 3))).collect();
    all.push(operation(10, u64::MAX - 60_000));
    all.push(operation(11, u64::MAX - 60_000));
    write(&*store, all.clone()).await?;
    all.sort_by_key(|operation| std::cmp::Reverse((operation.began, operation.id.clone())));
    for limit in [1, 3, 12, 13] {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = store.find_operations(&OperationFilter { after, limit, ..OperationFilter::default() }).await?;
            assert!(page.len() <= limit, "a page of {} for {limit}", page.len());
            let Some(last) = page.last() else { break };
            after = Some((last.began, last.id.clone()));
            pages.extend(page);
        }
        assert_eq!(pages, all, "in pages of {limit}");
    }
    Ok(())
}
