//! Runs that end although no call stopped them.

use dorm_engine::Notice;
use dorm_lifecycle::RunCondition;

use crate::scenario::Scenario;

pub(super) async fn a_run_killed_from_outside_is_noticed(scenario: &Scenario) {
    let mut notices = scenario.engine().notices();
    let (guest, other) = (scenario.start().await, scenario.start().await);
    scenario.subject.kill(guest.run()).await;
    match notices.recv().await {
        Some(Notice::Ended { run, .. }) => assert_eq!(run, *guest.run()),
        other => panic!("a run was killed, but the notice is {other:?}"),
    }
    guest.agent.closed().await;
    let condition = scenario.condition(guest.run()).await;
    assert!(matches!(condition, None | Some(RunCondition::Broken)), "{condition:?}");
    let mut counter = scenario.counting(&other, "alive").await;
    assert_eq!(other.ask(&mut counter).await, "alive 1");
    scenario.stop(guest).await;
    scenario.stop(other).await;
    scenario.nothing_is_left().await;
}

pub(super) async fn a_stopped_run_is_not_noticed(scenario: &Scenario) {
    let mut notices = scenario.engine().notices();
    let (stopped, parked, killed) = (scenario.start().await, scenario.start().await, scenario.start().await);
    scenario.save(&parked).await;
    scenario.engine().park(parked.run()).await.expect("park");
    scenario.stop(stopped).await;
    scenario.stop(parked).await;
    scenario.subject.kill(killed.run()).await;
    match notices.recv().await {
        Some(Notice::Ended { run, .. }) => assert_eq!(run, *killed.run()),
        other => panic!("only one run was killed, but the notice is {other:?}"),
    }
}

pub(super) async fn a_run_killed_without_a_daemon_is_not_found_alive(scenario: &Scenario) {
    let (killed, spared) = (scenario.start().await, scenario.start().await);
    let mut counter = scenario.counting(&spared, "kept").await;
    assert_eq!(spared.ask(&mut counter).await, "kept 1");
    let (killed, spared) = (killed.spec, spared.spec);
    scenario.subject.kill(&killed.run).await;
    scenario.subject.reopen().await;
    let condition = scenario.condition(&killed.run).await;
    assert!(matches!(condition, None | Some(RunCondition::Broken)), "{condition:?}");
    scenario.engine().stop(&killed.run).await.expect("stop");
    assert_eq!(scenario.condition(&killed.run).await, None);
    assert_eq!(scenario.attach(spared).await.ask(&mut counter).await, "kept 2");
}
