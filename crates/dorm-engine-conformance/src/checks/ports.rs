//! Connections to ports of a guest.

use dorm_agent_client::AgentError;
use dorm_engine::{BoxStream, EngineError};
use dorm_lifecycle::{Egress, EgressDefault, EgressRules, HTTPS_PORT, HeaderRule, ProjectId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scenario::{Guest, Scenario, wait_for};

async fn serving(scenario: &Scenario, egress: Egress, port: u16) -> Guest {
    let mut spec = scenario.spec();
    spec.egress = egress;
    let guest = scenario.start_as(spec).await;
    guest.answering(&scenario.subject.programs().serving, &[&port.to_string()]).await;
    guest
}

/// Connects to the server of a guest as soon as it listens.
async fn connected(scenario: &Scenario, guest: &Guest) -> BoxStream {
    wait_for(|| async {
        match scenario.engine().connect(guest.run(), 8080).await {
            Ok(stream) => Some(stream),
            Err(EngineError::Refused { port: 8080, .. }) => None,
            Err(error) => panic!("{}", error.chain()),
        }
    })
    .await
}

async fn answers(mut stream: BoxStream) {
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("send a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.contains(" 200 OK\r\n"), "{answer:?}");
}

pub(super) async fn a_port_is_reached_from_outside(scenario: &Scenario) {
    let guest = serving(scenario, Egress::Public, 8080).await;
    let engine = scenario.engine();
    answers(connected(scenario, &guest).await).await;
    // The port still answers after a pause of the guest, and so does the same port of a restored
    // run.
    let image = scenario.save(&guest).await;
    scenario.resume(&guest).await;
    answers(engine.connect(guest.run(), 8080).await.expect("connect")).await;
    let restored = scenario.restore(&image, &guest).await;
    answers(engine.connect(restored.run(), 8080).await.expect("connect")).await;
}

pub(super) async fn a_port_where_nobody_listens_refuses(scenario: &Scenario) {
    let mut spec = scenario.spec();
    spec.egress = Egress::Public;
    let guest = scenario.start_as(spec).await;
    let refused = scenario.engine().connect(guest.run(), 8081).await.err();
    assert!(matches!(&refused, Some(EngineError::Refused { port: 8081, run }) if run == guest.run()), "{refused:?}");
}

pub(super) async fn connections_to_ports_end_with_the_run(scenario: &Scenario) {
    let guest = serving(scenario, Egress::Public, 8080).await;
    let mut reading = connected(scenario, &guest).await;
    // The server waits for the rest of a request, so only the end of the run ends the connection.
    reading.write_all(b"GET / HTTP/1.0\r\n").await.expect("send half a request");
    let waiting = tokio::spawn(async move { reading.read_to_end(&mut Vec::new()).await.map(drop) });
    scenario.stop(guest).await;
    // A close and an error are the same to a client that waits for an answer.
    let _ = waiting.await.expect("the reader");
    scenario.nothing_is_left().await;
}

pub(super) async fn a_run_without_network_is_reached_through_its_agent_only(scenario: &Scenario) {
    let guest = serving(scenario, Egress::None, 8080).await;
    let stream = wait_for(|| async {
        match guest.agent.dial(8080).await {
            Ok(stream) => Some(stream),
            Err(AgentError::Refused(8080)) => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    answers(Box::new(stream)).await;
    let refused = scenario.engine().connect(guest.run(), 8080).await.err();
    assert!(matches!(&refused, Some(EngineError::Condition { .. })), "{refused:?}");
}

fn with_header(value: &str) -> Egress {
    let (host, name) = ("api.example.com".to_owned(), "Authorization".to_owned());
    let header = HeaderRule { host, port: HTTPS_PORT, name, value: value.to_owned(), project: ProjectId::local() };
    Egress::Rules(EgressRules { rules: Vec::new(), default: EgressDefault::Public, headers: vec![header] })
}

pub(super) async fn egress_changes_in_any_condition_of_a_run_that_has_a_network(scenario: &Scenario) {
    let guest = serving(scenario, Egress::Public, 8080).await;
    let engine = scenario.engine();
    engine.set_egress(guest.run(), &Egress::closed()).await.expect("close the egress of a running run");
    // Incoming connections do not depend on the egress.
    answers(connected(scenario, &guest).await).await;
    scenario.save(&guest).await;
    engine.set_egress(guest.run(), &with_header("{TOKEN}")).await.expect("add a header rule to a paused run");
    engine.set_egress(guest.run(), &Egress::Public).await.expect("open the egress of a paused run");
    engine.park(guest.run()).await.expect("park");
    engine.set_egress(guest.run(), &Egress::closed()).await.expect("close the egress of a parked run");
    engine.set_egress(guest.run(), &Egress::closed()).await.expect("close it again");
    scenario.resume(&guest).await;
    answers(engine.connect(guest.run(), 8080).await.expect("connect")).await;
    for wrong in [Egress::Allow(vec!["nonsense".to_owned()]), with_header("no secret")] {
        assert!(matches!(engine.set_egress(guest.run(), &wrong).await, Err(EngineError::Failed { .. })), "{wrong:?}");
    }

    let alone = scenario.start_as(scenario.spec()).await;
    let refused = engine.set_egress(alone.run(), &Egress::Public).await.err();
    assert!(matches!(&refused, Some(EngineError::Condition { .. })), "{refused:?}");
}
