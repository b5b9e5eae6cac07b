//! What an engine finds when the daemon comes back.

use dorm_lifecycle::{RunCondition, RunId};

use crate::story::Story;

pub(super) async fn a_reopened_engine_finds_runs_in_their_conditions(story: &Story) {
    let (running, paused, parked) = (story.start().await, story.start().await, story.start().await);
    story.capture(&paused).await;
    story.capture(&parked).await;
    story.engine().park(parked.run()).await.expect("park");
    let mut expected = [
        (running.spec.run, RunCondition::Running),
        (paused.spec.run, RunCondition::Paused),
        (parked.spec.run, RunCondition::Parked),
    ];
    drop((running.agent, paused.agent, parked.agent));
    story.subject.reopen().await;
    let found = story.engine().inventory().await.expect("the inventory");
    let mut found: Vec<_> = found.into_iter().map(|found| (found.run, found.condition)).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    for (run, condition) in expected {
        assert_eq!(story.condition(&run).await, Some(condition));
    }
}

pub(super) async fn runs_found_by_a_reopened_engine_go_on_exactly(story: &Story) {
    let (running, paused, parked) = (story.start().await, story.start().await, story.start().await);
    let mut counters = Vec::new();
    for guest in [&running, &paused, &parked] {
        let mut counter = story.counting(guest, "kept").await;
        assert_eq!(guest.ask(&mut counter).await, "kept 1");
        counters.push(counter);
    }
    story.capture(&paused).await;
    story.capture(&parked).await;
    story.engine().park(parked.run()).await.expect("park");
    let specs = [running.spec, paused.spec, parked.spec];
    drop((running.agent, paused.agent, parked.agent));
    story.subject.reopen().await;
    for (spec, mut counter) in specs.into_iter().zip(counters) {
        story.engine().go_on(&spec.run).await.expect("go on");
        let guest = story.attach(spec).await;
        assert_eq!(guest.ask(&mut counter).await, "kept 2");
        // All else works too, not only what was going on.
        let image = story.capture(&guest).await;
        let restored = story.restore(&image, &guest).await;
        assert_eq!(restored.ask(&mut counter).await, "kept 3");
        story.stop(restored).await;
        story.stop(guest).await;
    }
    story.nothing_is_left().await;
}

pub(super) async fn a_sweep_removes_unknown_runs_only(story: &Story) {
    let (known, unknown, parked) = (story.start().await, story.start().await, story.start().await);
    let mut counter = story.counting(&known, "kept").await;
    assert_eq!(known.ask(&mut counter).await, "kept 1");
    story.capture(&parked).await;
    story.engine().park(parked.run()).await.expect("park");
    let (known, unknown, parked) = (known.spec, unknown.spec, parked.spec);
    story.subject.reopen().await;
    let swept = story.engine().sweep(std::slice::from_ref(&known.run)).await.expect("sweep");
    assert!(!swept.is_empty(), "two runs were swept away, but nothing is said about it");
    let names = |run: &RunId| swept.iter().any(|line| line.contains(&run.to_string()));
    assert!(!names(&known.run), "a known run was swept: {swept:?}");
    assert_eq!(story.condition(&unknown.run).await, None);
    assert_eq!(story.condition(&parked.run).await, None);
    assert_eq!(story.attach(known.clone()).await.ask(&mut counter).await, "kept 2");
    story.engine().stop(&known.run).await.expect("stop");
    story.nothing_is_left().await;
}

pub(super) async fn closing_an_engine_leaves_its_runs_alone(story: &Story) {
    let guest = story.start().await;
    let mut counter = story.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    let spec = guest.spec;
    drop(guest.agent);
    story.engine().close().await;
    story.subject.reopen().await;
    assert_eq!(story.condition(&spec.run).await, Some(RunCondition::Running));
    assert_eq!(story.attach(spec).await.ask(&mut counter).await, "kept 2");
}
