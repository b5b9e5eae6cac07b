use dorm_lifecycle::{Cause, ProjectId, Sandbox, SandboxSpec, SleepImage, State, Timestamp};
use dorm_store::memory::MemoryStore;

use super::{Committing, Living, *};

fn sandbox(number: u8, state: State) -> Sandbox {
    let at = Timestamp::from_millis(1_000);
    let mut spec = SandboxSpec::new("0".repeat(64).parse().unwrap(), None);
    spec.suspendable = true;
    Sandbox::new(SandboxId::from_random([number; 20]), ProjectId::local(), spec, at, state)
}

fn suspended() -> State {
    let saved_state = dorm_lifecycle::SavedStateId::from_random([7; 20]);
    State::Suspended {
        image: SleepImage { saved_state, generation: 1, taken: Timestamp::from_millis(1), bytes: 1, files: None },
        background: None,
    }
}

fn running() -> State {
    State::Running { since: Timestamp::from_millis(1_000), image: None, background: None }
}

fn change(sandbox: Sandbox, revision: u64) -> Change {
    Change { sandboxes: vec![SandboxRecord { sandbox, revision }], ..Change::default() }
}

async fn states(living: &Living, store: &dyn Store) -> Vec<(u64, StateName)> {
    let told = living.totals(store).await.unwrap();
    let all = living.look(store, |records| Totals::of(records.values())).await.unwrap();
    let there =
        |totals: Totals| (totals.states.into_iter().filter(|(_, count)| *count > 0).collect(), totals.image_bytes);
    let (told, all): ((Vec<_>, u64), (Vec<_>, u64)) = (there(told), there(all));
    assert_eq!(told, all);
    let look = |records: &BTreeMap<SandboxId, SandboxRecord>| {
        records.values().map(|record| (record.revision, record.sandbox.state.name())).collect()
    };
    living.look(store, look).await.unwrap()
}

#[tokio::test]
async fn the_living_are_those_of_the_store_after_each_commit() {
    let (living, store) = (Living::default(), MemoryStore::new());
    store.commit(change(sandbox(1, running()), 0)).await.unwrap();
    assert_eq!(states(&living, &store).await, [(1, StateName::Running)]);
    living.commit(&store, change(sandbox(2, running()), 0)).await.unwrap();
    living.commit(&store, change(sandbox(1, suspended()), 1)).await.unwrap();
    assert_eq!(states(&living, &store).await, [(2, StateName::Suspended), (1, StateName::Running)]);
    assert!(living.commit(&store, change(sandbox(1, running()), 1)).await.is_err());
    assert_eq!(states(&living, &store).await, [(2, StateName::Suspended), (1, StateName::Running)]);
    let over = State::Terminated { cause: Cause::Requested, at: Timestamp::from_millis(2_000) };
    living.commit(&store, change(sandbox(1, over), 2)).await.unwrap();
    assert_eq!(states(&living, &store).await, [(1, StateName::Running)]);
}

#[tokio::test]
async fn after_a_commit_of_which_nothing_is_known_the_store_is_read_again() {
    let (living, store) = (Living::default(), MemoryStore::new());
    living.commit(&store, change(sandbox(1, running()), 0)).await.unwrap();
    assert_eq!(states(&living, &store).await, [(1, StateName::Running)]);
    store.commit(change(sandbox(1, suspended()), 1)).await.unwrap();
    assert_eq!(states(&living, &store).await, [(1, StateName::Running)]);
    drop(Committing { living: &living, is_ended: false });
    assert_eq!(states(&living, &store).await, [(2, StateName::Suspended)]);
}

#[tokio::test]
async fn after_a_commit_from_an_older_record_the_store_is_read_again() {
    let (living, store) = (Living::default(), MemoryStore::new());
    living.commit(&store, change(sandbox(1, running()), 0)).await.unwrap();
    assert_eq!(states(&living, &store).await, [(1, StateName::Running)]);
    store.commit(change(sandbox(1, suspended()), 1)).await.unwrap();
    let refused = living.commit(&store, change(sandbox(1, running()), 1)).await;
    assert!(matches!(refused, Err(StoreError::Stale { .. })), "{refused:?}");
    assert_eq!(states(&living, &store).await, [(2, StateName::Suspended)]);
}
