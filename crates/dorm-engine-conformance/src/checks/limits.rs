//! Runs that reach their limits.

use bytes::Bytes;
use dorm_agent_client::{AgentError, ExitStatus, RemoveScope, WriteOptions};
use dorm_engine::{EngineError, Notice};
use dorm_lifecycle::{Resources, RunCondition, RunId, SandboxId};
use tokio::sync::mpsc::Receiver;

use crate::scenario::{Answering, Guest, Scenario, guest_path};

pub(super) async fn a_full_disk_is_told_and_passes(scenario: &Scenario) {
    let mut spec = scenario.spec();
    spec.resources.disk_bytes = 64 << 20;
    let guest = scenario.start_as(spec).await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    let megabyte = Bytes::from(vec![b'x'; 1 << 20]);
    let body = futures_util::stream::iter((0..96).map(|_| Ok::<_, AgentError>(megabyte.clone())));
    let written = guest.agent.write_file(&guest_path("/root/large"), WriteOptions::default(), body).await;
    assert!(matches!(written, Err(AgentError::NoSpace(_))), "{written:?}");
    // A file that was not written completely does not exist, and its space is free again.
    assert!(matches!(guest.read("/root/large").await, Err(AgentError::NotFound(_))));
    guest.write("/root/small", "fits").await;
    assert_eq!(guest.read("/root/small").await.expect("the file"), "fits");
    guest.agent.remove(&guest_path("/root/small"), RemoveScope::Single).await.expect("remove");
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
}

pub(super) async fn too_much_memory_costs_one_process(scenario: &Scenario) {
    let mut notices = scenario.engine().notices();
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    // A second round shows that the threshold is armed again.
    for round in 0..2 {
        let allocating = guest.answering(&scenario.subject.programs().allocating, &[]).await;
        dies_for_its_memory(scenario, &guest, &mut notices, (&allocating, 0)).await;
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", round + 2));
    }
}

/// Relieves the memory pressure of `guest` at each notice until `allocating` is dead. It was
/// relieved `relieved` times before.
async fn dies_for_its_memory(
    scenario: &Scenario,
    guest: &Guest,
    notices: &mut Receiver<Notice>,
    (allocating, mut relieved): (&Answering, usize),
) {
    // The memory of the dead process may take a moment to become free, so there may be more than
    // one notice.
    let mut ended = std::pin::pin!(guest.agent.wait(allocating.process));
    let status = loop {
        tokio::select! {
            biased;
            status = &mut ended => break status.expect("its end"),
            () = memory_is_high(guest.run(), notices) => {}
        }
        assert!(relieved < 20, "the process that has all the memory is not killed");
        scenario.engine().relieve_memory_pressure(guest.run(), Some(allocating.pid)).await.expect("relieve");
        relieved += 1;
    };
    assert_eq!((status, relieved > 0), (ExitStatus::Signal(9), true));
}

async fn memory_is_high(run: &RunId, notices: &mut Receiver<Notice>) {
    loop {
        match notices.recv().await {
            Some(Notice::MemoryHigh { run: short }) if short == *run => return,
            // This notice is about a run that has been stopped since, or was parked.
            Some(Notice::MemoryHigh { .. } | Notice::MemoryReleased { .. }) => {}
            other => panic!("memory ran high, but the notice is {other:?}"),
        }
    }
}

pub(super) async fn a_run_short_of_memory_can_be_saved_and_is_held(scenario: &Scenario) {
    let mut notices = scenario.engine().notices();
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    let allocating = guest.answering(&scenario.subject.programs().allocating, &[]).await;
    memory_is_high(guest.run(), &mut notices).await;
    scenario.engine().relieve_memory_pressure(guest.run(), None).await.expect("let the agent run");
    assert_eq!(guest.agent.oom_victim().await, Some(allocating.pid));
    let image = scenario.save(&guest).await;
    let mut in_child = counter;
    scenario.engine().relieve_memory_pressure(guest.run(), None).await.expect("leave it as it is");
    assert_eq!(scenario.condition(guest.run()).await, Some(RunCondition::Paused));
    scenario.engine().resume(guest.run()).await.expect("resume");
    // The guest may be paused again before its agent has answered.
    let (answered, ()) =
        tokio::join!(guest.agent.unquiesce(), dies_for_its_memory(scenario, &guest, &mut notices, (&allocating, 0)));
    answered.expect("an agent that answers again");
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
    scenario.stop(guest).await;
    // The image does not record that only the agent ran, and a run that starts under memory
    // pressure is reported as well.
    let spec = scenario.spec();
    scenario.engine().restore(&spec, &image.directory).await.expect("restore");
    memory_is_high(&spec.run, &mut notices).await;
    scenario.engine().relieve_memory_pressure(&spec.run, Some(allocating.pid)).await.expect("relieve");
    let child = scenario.attach(spec).await;
    assert_eq!(child.agent.wait(allocating.process).await.expect("its end"), ExitStatus::Signal(9));
    assert_eq!(child.ask(&mut in_child).await, "kept 2");
}

pub(super) async fn usage_is_told_of_a_run(scenario: &Scenario) {
    let guest = scenario.start().await;
    let mut ticking = scenario.ticking(&guest).await;
    let before = scenario.engine().usage(guest.run()).await.expect("usage");
    assert!(before.memory_bytes > 0 && before.processes > 0 && before.cpu_micros > 0, "{before:?}");
    guest.ticks(&mut ticking, 20).await;
    let after = scenario.engine().usage(guest.run()).await.expect("usage");
    assert!(after.cpu_micros > before.cpu_micros, "{before:?} {after:?}");
}

pub(super) async fn limits_change_in_any_condition_of_a_run(scenario: &Scenario) {
    let engine = scenario.engine();
    let mut notices = engine.notices();
    let guest = scenario.start().await;
    let mut counter = scenario.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    let before = scenario.spec().resources;
    let larger = Resources { cpu_millis: before.cpu_millis * 2, memory_bytes: before.memory_bytes * 2, ..before };
    engine.set_limits(guest.run(), &larger).await.expect("raise the limits of a running run");
    engine.set_limits(guest.run(), &larger).await.expect("raise them again");
    // It runs short of memory at the new limit, and not at the old one.
    let allocating = guest.answering(&scenario.subject.programs().allocating, &[]).await;
    memory_is_high(guest.run(), &mut notices).await;
    let used = engine.usage(guest.run()).await.expect("its usage").memory_bytes;
    assert!(used > before.memory_bytes, "it was short of memory at {used} bytes already");
    engine.relieve_memory_pressure(guest.run(), Some(allocating.pid)).await.expect("relieve");
    dies_for_its_memory(scenario, &guest, &mut notices, (&allocating, 1)).await;
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
    engine.pause(guest.run()).await.expect("pause");
    engine.set_limits(guest.run(), &before).await.expect("lower the limits of a paused run");
    engine.park(guest.run()).await.expect("park");
    engine.set_limits(guest.run(), &larger).await.expect("raise the limits of a parked run");
    engine.resume(guest.run()).await.expect("resume");
    assert_eq!(guest.ask(&mut counter).await, "kept 3");
    let nobody = RunId { sandbox: SandboxId::from_random([99; 20]), generation: 1 };
    assert!(matches!(engine.set_limits(&nobody, &larger).await, Err(EngineError::NoRun(_))));
}
