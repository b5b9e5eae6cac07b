//! Connections to what listens inside.

use dorm_agent_client::AgentError;
use dorm_engine::{BoxStream, EngineError};
use dorm_lifecycle::Egress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::story::{Guest, Story, wait_for};

async fn serving(story: &Story, egress: Egress, port: u16) -> Guest {
    let mut spec = story.spec();
    spec.egress = egress;
    let guest = story.start_as(spec).await;
    guest.answering(&story.subject.programs().serving, &[&port.to_string()]).await;
    guest
}

async fn answers(mut stream: BoxStream) {
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("send a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.contains(" 200 OK\r\n"), "{answer:?}");
}

pub(super) async fn a_port_is_reached_from_outside(story: &Story) {
    let guest = serving(story, Egress::Public, 8080).await;
    let engine = story.engine();
    let stream = wait_for(|| async {
        match engine.connect(guest.run(), 8080).await {
            Ok(stream) => Some(stream),
            Err(EngineError::Refused { port: 8080, .. }) => None,
            Err(error) => panic!("{}", error.chain()),
        }
    })
    .await;
    answers(stream).await;
    // It still does after the guest has stood still, and so does a restored one, on the same port.
    let image = story.capture(&guest).await;
    story.go_on(&guest).await;
    answers(engine.connect(guest.run(), 8080).await.expect("connect")).await;
    let restored = story.restore(&image, &guest).await;
    answers(engine.connect(restored.run(), 8080).await.expect("connect")).await;
}

pub(super) async fn a_port_where_nobody_listens_refuses(story: &Story) {
    let mut spec = story.spec();
    spec.egress = Egress::Public;
    let guest = story.start_as(spec).await;
    let refused = story.engine().connect(guest.run(), 8081).await.err();
    assert!(matches!(&refused, Some(EngineError::Refused { port: 8081, run }) if run == guest.run()), "{refused:?}");
}

pub(super) async fn a_run_without_network_is_reached_through_its_agent_only(story: &Story) {
    let guest = serving(story, Egress::None, 8080).await;
    let stream = wait_for(|| async {
        match guest.agent.dial(8080).await {
            Ok(stream) => Some(stream),
            Err(AgentError::Refused(8080)) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    answers(Box::new(stream)).await;
    let refused = story.engine().connect(guest.run(), 8080).await.err();
    assert!(matches!(&refused, Some(EngineError::Condition { .. })), "{refused:?}");
}
