//! A request with an idempotency key is found until it is removed or too old.

use std::sync::Arc;

use dorm_lifecycle::{HoldId, RequestId, SandboxId};

use super::sample::{at, bytes, project};
use crate::{Change, Made, Prune, Pruned, RequestRecord, Store, StoreError};

type Checked = Result<(), StoreError>;

fn request(number: u32, millis: u64) -> RequestRecord {
    RequestRecord {
        id: RequestId::from_random(bytes(number)),
        project: project("local"),
        fingerprint: [7; 32],
        made: Made::Sandbox(SandboxId::from_random(bytes(number + 100))),
        at: at(millis),
    }
}

pub(super) async fn a_request_is_found_by_its_id(store: Arc<dyn Store>) -> Checked {
    let [first, second] = [request(1, 1_000), request(2, 2_000)];
    store.commit(Change { requests: vec![first.clone(), second.clone()], ..Change::default() }).await?;
    assert_eq!(store.request(&first.id).await?, Some(first.clone()));
    assert_eq!(store.request(&request(3, 0).id).await?, None);
    let replaced = RequestRecord { made: Made::Hold(HoldId::from_random([9; 20])), ..first.clone() };
    let removed_requests = vec![second.id.clone(), request(3, 0).id];
    store.commit(Change { requests: vec![replaced.clone()], removed_requests, ..Change::default() }).await?;
    assert_eq!(store.request(&first.id).await?, Some(replaced));
    assert_eq!(store.request(&second.id).await?, None);
    Ok(())
}

pub(super) async fn old_requests_are_removed_in_batches(store: Arc<dyn Store>) -> Checked {
    let all: Vec<_> = (1..=4).map(|number| request(number, u64::from(number) * 1_000)).collect();
    store.commit(Change { requests: all.clone(), ..Change::default() }).await?;
    let before = |millis, batch| Prune { requests_before: Some(at(millis)), batch, ..Prune::default() };
    assert_eq!(store.prune(&before(1_000, 100)).await?, Pruned::default());
    assert_eq!(store.prune(&before(4_000, 2)).await?, Pruned { requests: 2, ..Pruned::default() });
    let left = async |number: usize| store.request(&all[number - 1].id).await.map(|found| found.is_some());
    assert_eq!([left(1).await?, left(2).await?, left(3).await?], [false, false, true], "the oldest first");
    assert_eq!(store.prune(&before(4_000, 2)).await?.requests, 1);
    assert!(left(4).await?, "it is not older");
    Ok(())
}
