//! What happens at the limits of a run.

use bytes::Bytes;
use dorm_agent_client::{AgentError, ExitStatus, RemoveScope, WriteOptions};
use dorm_engine::Notice;

use crate::story::{Story, guest_path};

pub(super) async fn a_full_disk_is_told_and_passes(story: &Story) {
    let mut spec = story.spec();
    spec.resources.disk_bytes = 64 << 20;
    let guest = story.start_as(spec).await;
    let mut counter = story.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    let megabyte = Bytes::from(vec![b'x'; 1 << 20]);
    let body = futures_util::stream::iter((0..96).map(|_| Ok::<_, AgentError>(megabyte.clone())));
    let written = guest.agent.write_file(&guest_path("/root/large"), WriteOptions::default(), body).await;
    assert!(matches!(written, Err(AgentError::NoSpace(_))), "{written:?}");
    // A file that was not written whole is not there, and what it took is free again.
    assert!(matches!(guest.read("/root/large").await, Err(AgentError::NotFound(_))));
    guest.write("/root/small", "fits").await;
    assert_eq!(guest.read("/root/small").await.expect("the file"), "fits");
    guest.agent.remove(&guest_path("/root/small"), RemoveScope::Single).await.expect("remove");
    assert_eq!(guest.ask(&mut counter).await, "kept 2");
}

pub(super) async fn too_much_memory_costs_one_process(story: &Story) {
    let mut notices = story.engine().notices();
    let guest = story.start().await;
    let mut counter = story.counting(&guest, "kept").await;
    assert_eq!(guest.ask(&mut counter).await, "kept 1");
    // Once more, to see that the threshold is armed again.
    for round in 0..2 {
        let hungry = guest.answering(&story.subject.programs().hungry, &[]).await;
        // What the dead process had may take a moment to be free, so there may be more than one notice.
        let mut ended = std::pin::pin!(guest.agent.wait(hungry.process));
        let mut relieved = 0;
        let status = loop {
            tokio::select! {
                biased;
                status = &mut ended => break status.expect("its end"),
                notice = notices.recv() => match notice {
                    Some(Notice::MemoryHigh { run }) => assert_eq!(run, *guest.run()),
                    other => panic!("memory ran high, but the notice is {other:?}"),
                },
            }
            assert!(relieved < 20, "the process that has all the memory is not killed");
            story.engine().relieve(guest.run(), Some(hungry.pid)).await.expect("relieve");
            relieved += 1;
        };
        assert_eq!((status, relieved > 0), (ExitStatus::Signal(9), true));
        assert_eq!(guest.ask(&mut counter).await, format!("kept {}", round + 2));
    }
}

pub(super) async fn usage_is_told_of_a_run(story: &Story) {
    let guest = story.start().await;
    let mut ticking = story.ticking(&guest).await;
    let before = story.engine().usage(guest.run()).await.expect("usage");
    assert!(before.memory_bytes > 0 && before.processes > 0 && before.cpu_micros > 0, "{before:?}");
    guest.ticks(&mut ticking, 20).await;
    let after = story.engine().usage(guest.run()).await.expect("usage");
    assert!(after.cpu_micros > before.cpu_micros, "{before:?} {after:?}");
}
