//! Starts of runs.

use dorm_agent_client::{Agent, AgentError};
use dorm_engine::EngineError;
use futures_util::future::join_all;

use crate::scenario::Scenario;

pub(super) async fn a_started_run_has_an_agent_that_answers(scenario: &Scenario) {
    let guest = scenario.start().await;
    assert_eq!(guest.agent.pid(), 1, "the agent is the first process of every sandbox");
    let mut counter = scenario.counting(&guest, "first").await;
    assert_eq!(guest.ask(&mut counter).await, "first 1");
    guest.write("/root/note", "written").await;
    assert_eq!(guest.read("/root/note").await.expect("the file"), "written");
    assert_eq!(guest.read("/run/dormouse/generation").await.expect("the generation").trim(), "1");
}

pub(super) async fn starting_twice_is_refused_and_the_first_run_lives(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "first").await;
    assert_eq!(guest.ask(&mut counter).await, "first 1");
    let again = scenario.engine().start(&guest.spec).await;
    assert!(matches!(&again, Err(EngineError::Exists(run)) if run == guest.run()), "{again:?}");
    assert_eq!(guest.ask(&mut counter).await, "first 2");
}

pub(super) async fn two_runs_at_once_share_nothing(scenario: &Scenario) {
    let (one, other) = (scenario.start().await, scenario.start().await);
    let (mut in_one, mut in_other) = (scenario.counting(&one, "one").await, scenario.counting(&other, "other").await);
    one.write("/root/note", "of the one").await;
    assert!(matches!(other.read("/root/note").await, Err(AgentError::NotFound(_))));
    assert_eq!(one.ask(&mut in_one).await, "one 1");
    assert_eq!(one.ask(&mut in_one).await, "one 2");
    assert_eq!(other.ask(&mut in_other).await, "other 1");
    scenario.stop(one).await;
    assert_eq!(other.ask(&mut in_other).await, "other 2");
}

pub(super) async fn a_new_stream_to_the_agent_ends_the_one_before(scenario: &Scenario) {
    let before = scenario.start().await;
    let mut counter = scenario.counting(&before, "kept").await;
    assert_eq!(before.ask(&mut counter).await, "kept 1");
    let after = scenario.attach(before.spec.clone()).await;
    before.agent.closed().await;
    assert_eq!(after.ask(&mut counter).await, "kept 2");
}

pub(super) async fn preparing_an_image_changes_nothing_for_its_runs(scenario: &Scenario) {
    let (image, rootfs) = scenario.subject.image();
    scenario.engine().prepare(&image, &rootfs).await.expect("prepare");
    let (one, other) = (scenario.start().await, scenario.start().await);
    assert!(one.agent.processes().await.expect("the processes").is_empty());
    one.write("/root/note", "of the one").await;
    assert!(matches!(other.read("/root/note").await, Err(AgentError::NotFound(_))));
    scenario.engine().prepare(&image, &rootfs).await.expect("prepare again");
}

pub(super) async fn expected_runs_start_as_any_other_and_the_rest_is_released(scenario: &Scenario) {
    let engine = scenario.engine();
    let expected = engine.expect(&scenario.spec(), 3);
    let (one, other) = (scenario.start().await, scenario.start().await);
    assert!(one.agent.processes().await.expect("the processes").is_empty());
    one.write("/root/note", "of the one").await;
    assert!(matches!(other.read("/root/note").await, Err(AgentError::NotFound(_))));
    // One that no run has taken, and one for which there is no run at all.
    drop(expected);
    drop(engine.expect(&scenario.spec(), 1));
    // An expectation that ends does not end the runs.
    one.write("/root/note", "still there").await;
    for run in [one, other] {
        scenario.stop(run).await;
    }
    let left = engine.expect(&scenario.spec(), 2);
    engine.close().await;
    scenario.nothing_is_left().await;
    drop(left);
}

pub(super) async fn eight_runs_start_and_stop_at_once(scenario: &Scenario) {
    let engine = scenario.engine();
    let runs = join_all((0..8).map(|_| async {
        let spec = scenario.spec();
        engine.start(&spec).await.expect("start");
        let agent = Agent::connect(engine.agent(&spec.run).await.expect("a stream"), 1).await.expect("an agent");
        agent.ping().await.expect("an agent that answers");
        spec.run
    }))
    .await;
    join_all(runs.iter().map(|run| async { engine.stop(run).await.expect("stop") })).await;
    scenario.nothing_is_left().await;
}
