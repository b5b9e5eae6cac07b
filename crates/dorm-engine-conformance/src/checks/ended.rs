//! Runs that end without having been stopped.

use dorm_engine::Notice;
use dorm_lifecycle::RunCondition;

use crate::story::Story;

pub(super) async fn a_run_killed_from_outside_is_noticed(story: &Story) {
    let mut notices = story.engine().notices();
    let (guest, other) = (story.start().await, story.start().await);
    story.subject.kill(guest.run()).await;
    match notices.recv().await {
        Some(Notice::Ended { run, .. }) => assert_eq!(run, *guest.run()),
        other => panic!("a run was killed, but the notice is {other:?}"),
    }
    guest.agent.closed().await;
    let condition = story.condition(guest.run()).await;
    assert!(matches!(condition, None | Some(RunCondition::Broken)), "{condition:?}");
    let mut counter = story.counting(&other, "alive").await;
    assert_eq!(other.ask(&mut counter).await, "alive 1");
    story.stop(guest).await;
    story.stop(other).await;
    story.nothing_is_left().await;
}

pub(super) async fn a_stopped_run_is_not_noticed(story: &Story) {
    let mut notices = story.engine().notices();
    let (stopped, parked, killed) = (story.start().await, story.start().await, story.start().await);
    story.capture(&parked).await;
    story.engine().park(parked.run()).await.expect("park");
    story.stop(stopped).await;
    story.stop(parked).await;
    story.subject.kill(killed.run()).await;
    match notices.recv().await {
        Some(Notice::Ended { run, .. }) => assert_eq!(run, *killed.run()),
        other => panic!("only one run was killed, but the notice is {other:?}"),
    }
}

pub(super) async fn a_run_killed_without_a_daemon_is_not_found_alive(story: &Story) {
    let (killed, spared) = (story.start().await, story.start().await);
    let mut counter = story.counting(&spared, "kept").await;
    assert_eq!(spared.ask(&mut counter).await, "kept 1");
    let (killed, spared) = (killed.spec, spared.spec);
    story.subject.kill(&killed.run).await;
    story.subject.reopen().await;
    let condition = story.condition(&killed.run).await;
    assert!(matches!(condition, None | Some(RunCondition::Broken)), "{condition:?}");
    story.engine().stop(&killed.run).await.expect("stop");
    assert_eq!(story.condition(&killed.run).await, None);
    assert_eq!(story.attach(spared).await.ask(&mut counter).await, "kept 2");
}
