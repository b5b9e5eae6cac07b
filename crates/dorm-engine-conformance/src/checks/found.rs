//! The runs that an engine finds after a restart of the daemon.

use dorm_lifecycle::{RunCondition, RunId};

use crate::scenario::Scenario;

pub(super) async fn a_reopened_engine_finds_runs_in_their_conditions(scenario: &Scenario) {
    let (running, paused, parked) = (scenario.start().await, scenario.start().await, scenario.start().await);
    scenario.save(&paused).await;
    scenario.save(&parked).await;
    scenario.engine().park(parked.run()).await.expect("park");
    let mut expected = [
        (running.spec.run, RunCondition::Running),
        (paused.spec.run, RunCondition::Paused),
        (parked.spec.run, RunCondition::Parked),
    ];
    drop((running.agent, paused.agent, parked.agent));
    scenario.subject.reopen().await;
    let found = scenario.engine().inventory().await.expect("the inventory");
    let mut found: Vec<_> = found.into_iter().map(|found| (found.run, found.condition)).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for (run, condition) in expected {
        assert_eq!(scenario.condition(&run).await, Some(condition));
    }
}

pub(super) async fn runs_found_by_a_reopened_engine_continue_exactly(scenario: &Scenario) {
    let (running, paused, parked) = (scenario.start().await, scenario.start().await, scenario.start().await);
    let mut counters = Vec::new();
    for guest in [&running, &paused, &parked] {
        let mut counter = scenario.counting(guest, "kept").await;
        assert_eq!(guest.ask(&mut counter).await, "kept 1");
        counters.push(counter);
    }
    scenario.save(&paused).await;
    scenario.save(&parked).await;
    scenario.engine().park(parked.run()).await.expect("park");
    let specs = [running.spec, paused.spec, parked.spec];
    drop((running.agent, paused.agent, parked.agent));
    scenario.subject.reopen().await;
    for (spec, mut counter) in specs.into_iter().zip(counters) {
        scenario.engine().resume(&spec.run).await.expect("resume");
        let guest = scenario.attach(spec).await;
        assert_eq!(guest.ask(&mut counter).await, "kept 2");
        // New operations work too, not only the processes that were running.
        let image = scenario.save(&guest).await;
        let restored = scenario.restore(&image, &guest).await;
        assert_eq!(restored.ask(&mut counter).await, "kept 3");
        scenario.stop(restored).await;
        scenario.stop(guest).await;
    }
    scenario.nothing_is_left().await;
}

pub(super) async fn a_sweep_removes_unknown_runs_only(scenario: &Scenario) {
    let (known, unknown, parked) = (scenario.start().await, scenario.start().await, scenario.start().await);
    let mut counter = scenario.counting(&known, "kept").await;
    assert_eq!(known.ask(&mut counter).await, "kept 1");
    scenario.save(&parked).await;
    scenario.engine().park(parked.run()).await.expect("park");
    let (known, unknown, parked) = (known.spec, unknown.spec, parked.spec);
    scenario.subject.reopen().await;
    let swept = scenario.engine().sweep(std::slice::from_ref(&known.run)).await.expect("sweep");
    assert!(!swept.is_empty(), "two runs were swept away, but nothing is said about it");
    let names = |run: &RunId| swept.iter().any(|line| line.contains(&run.to_string()));
    assert!(!names(&known.run), "a known run was swept: {swept:?}");
    assert_eq!(scenario.condition(&unknown.run).await, None);
    assert_eq!(scenario.condition(&parked.run).await, None);
    assert_eq!(scenario.attach(known.clone()).await.ask(&mut counter).await, "kept 2");
    scenario.engine().stop(&known.run).await.expect("stop");
    scenario.nothing_is_left().await;
}

pub(super) async fn closing_an_engine_leaves_its_runs_alone(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    let spec = guest.spec;
    drop(guest.agent);
    scenario.engine().close().await;
    scenario.subject.reopen().await;
    assert_eq!(scenario.condition(&spec.run).await, Some(RunCondition::Running));
    assert_eq!(scenario.attach(spec).await.ask(&mut counter).await, "kept 2");
}
