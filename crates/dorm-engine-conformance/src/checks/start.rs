//! How runs begin.

use dorm_agent_client::{Agent, AgentError};
use dorm_engine::EngineError;
use futures_util::future::join_all;

use crate::story::Story;

pub(super) async fn a_started_run_has_an_agent_that_answers(story: &Story) {
    let guest = story.start().await;
    assert_eq!(guest.agent.pid(), 1, "the agent is the first process of every sandbox");
    let mut counter = story.counting(&guest, "first").await;
    assert_eq!(guest.ask(&mut counter).await, "first 1");
    guest.write("/root/note", "written").await;
    assert_eq!(guest.read("/root/note").await.expect("the file"), "written");
    assert_eq!(guest.read("/run/dormouse/generation").await.expect("the generation").trim(), "1");
}

pub(super) async fn starting_twice_is_refused_and_the_first_run_lives(story: &Story) {
    let guest = story.start().await;
    let mut counter = story.counting(&guest, "first").await;
    assert_eq!(guest.ask(&mut counter).await, "first 1");
    let again = story.engine().start(&guest.spec).await;
    assert!(matches!(&again, Err(EngineError::Exists(run)) if run == guest.run()), "{again:?}");
    assert_eq!(guest.ask(&mut counter).await, "first 2");
}

pub(super) async fn two_runs_at_once_share_nothing(story: &Story) {
    let (one, other) = (story.start().await, story.start().await);
    let (mut in_one, mut in_other) = (story.counting(&one, "one").await, story.counting(&other, "other").await);
    one.write("/root/note", "of the one").await;
    assert!(matches!(other.read("/root/note").await, Err(AgentError::NotFound(_))));
    assert_eq!(one.ask(&mut in_one).await, "one 1");
    assert_eq!(one.ask(&mut in_one).await, "one 2");
    assert_eq!(other.ask(&mut in_other).await, "other 1");
    story.stop(one).await;
    assert_eq!(other.ask(&mut in_other).await, "other 2");
}

pub(super) async fn a_new_stream_to_the_agent_ends_the_one_before(story: &Story) {
    let before = story.start().await;
    let mut counter = story.counting(&before, "kept").await;
    assert_eq!(before.ask(&mut counter).await, "kept 1");
    let after = story.attach(before.spec.clone()).await;
    before.agent.closed().await;
    assert_eq!(after.ask(&mut counter).await, "kept 2");
}

pub(super) async fn preparing_an_image_changes_nothing_for_its_runs(story: &Story) {
    let (image, rootfs) = story.subject.image();
    story.engine().prepare(&image, &rootfs).await.expect("prepare");
    let (one, other) = (story.start().await, story.start().await);
    assert!(one.agent.processes().await.expect("the processes").is_empty());
    one.write("/root/note", "of the one").await;
    assert!(matches!(other.read("/root/note").await, Err(AgentError::NotFound(_))));
    story.engine().prepare(&image, &rootfs).await.expect("prepare again");
}

pub(super) async fn eight_runs_start_and_stop_at_once(story: &Story) {
    let engine = story.engine();
    let runs = join_all((0..8).map(|_| async {
        let spec = story.spec();
        engine.start(&spec).await.expect("start");
        let agent = Agent::connect(engine.agent(&spec.run).await.expect("a stream"), 1).await.expect("an agent");
        agent.ping().await.expect("an agent that answers");
        spec.run
    }))
    .await;
    join_all(runs.iter().map(|run| async { engine.stop(run).await.expect("stop") })).await;
    story.nothing_is_left().await;
}
