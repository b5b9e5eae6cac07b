//! Operations can be looked up while they are in progress and after they have ended.

use dorm_engine_fake::{Fault, Moment, Operation};
use dorm_lifecycle::{Initiator, OperationId};
use dorm_service::Code;
use dorm_store::{OperationFilter, OperationKind, OperationResult};

use crate::world::{World, create, named, suspending};

fn of(sandbox: &dorm_lifecycle::SandboxId) -> OperationFilter {
    OperationFilter { sandbox: Some(sandbox.clone()), limit: 100, ..OperationFilter::default() }
}

#[tokio::test]
async fn the_operations_of_a_sandbox_are_listed_newest_first_with_their_results() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    create(&service, named("other")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::NoRoom);
    service.suspend(&id).await.unwrap_err();
    service.suspend(&id).await.unwrap();
    service.resume(&id, Initiator::User).await.unwrap();
    let page = service.operation_page(&of(&id)).await.unwrap();
    let mut kinds: Vec<_> = page.operations.iter().map(|operation| operation.kind).collect();
    // Operations that began in the same millisecond are ordered by id.
    kinds.sort_by_key(|kind| kind.as_str());
    let expected = [OperationKind::Create, OperationKind::Resume, OperationKind::Suspend, OperationKind::Suspend];
    assert_eq!((kinds, page.next), (expected.to_vec(), None));
    let mut newest_first = page.operations.clone();
    newest_first.sort_by_key(|operation| std::cmp::Reverse((operation.began, operation.id.clone())));
    assert_eq!(page.operations, newest_first);
    let failed = page.operations.iter().filter_map(|operation| match &operation.ended {
        Some((_, OperationResult::Failed(failure))) => Some(failure.code),
        Some((_, OperationResult::Done)) | None => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [Code::NoRoom]);
    let first = service.operation_page(&OperationFilter { limit: 3, ..of(&id) }).await.unwrap();
    let rest = service.operation_page(&OperationFilter { after: first.next.clone(), ..of(&id) }).await.unwrap();
    assert_eq!([first.operations, rest.operations].concat(), page.operations);
}

#[tokio::test]
async fn the_operation_that_a_sandbox_and_its_events_name_can_be_looked_up() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    world.host.faults().next(Operation::Save, Moment::Before, Fault::Hang);
    let suspending = suspending(&service, &id);
    world.host.faults().wait_until_struck(Operation::Save, 1).await;
    let events = service.events(&dorm_store::EventFilter { newest: 1, ..Default::default() }).await.unwrap();
    let named = events[0].event.operation.clone().unwrap();
    let operation = service.operation(&named).await.unwrap();
    assert_eq!((operation.kind, &operation.sandbox, operation.ended), (OperationKind::Suspend, &Some(id), None));
    world.host.faults().release();
    suspending.await.unwrap().unwrap();
    let ended = service.operation(&named).await.unwrap().ended;
    assert!(matches!(ended, Some((_, OperationResult::Done))), "{ended:?}");
    let unknown = OperationId::from_random([7; 20]);
    let refused = service.operation(&unknown).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, format!("there is no operation {unknown}")));
}
