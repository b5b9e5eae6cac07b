//! What is in progress is known until it is over.

use std::sync::Arc;

use super::sample::{at, operation};
use crate::{Change, Code, FailureRecord, OperationRecord, OperationResult, Store, StoreError};

type Checked = Result<(), StoreError>;

async fn write(store: &dyn Store, operations: Vec<OperationRecord>) -> Checked {
    store.commit(Change { operations, ..Change::default() }).await.map(drop)
}

pub(super) async fn an_operation_is_open_until_it_has_ended(store: Arc<dyn Store>) -> Checked {
    let mut first = operation(1, 1_000);
    let mut second = operation(2, 2_000);
    second.sandbox = None;
    second.capture = None;
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
