//! Searches and services inside a run.

use dorm_agent_client::{
    AgentError, Attribute, BinaryFiles, Case, DetailedEntry, GuestBytes, LinePattern, ProcessKey, ProcessSpec, Restart,
    RestartRules, SearchLimits, SearchSpec, ServiceChange, ServiceEvent, ServiceName, ServiceSpec, ServiceState,
    Syntax,
};

use crate::scenario::{Guest, Scenario, guest_path, wait_for};

/// Names below `/srv` that match, and the lines with a word: file, number and text.
async fn found(guest: &Guest) -> (Vec<String>, Vec<(String, u64, String)>) {
    let limits = SearchLimits { results: 100, entries: 10_000, bytes: 1 << 20, time_ms: 60_000 };
    let named = SearchSpec {
        path: guest_path("/srv"),
        depth: None,
        name: Some("*.txt".to_owned()),
        kind: None,
        lines: None,
        case: Case::Counts,
        limits,
    };
    let files = guest.agent.find_files(named.clone()).await.expect("a search for files");
    assert_eq!(files.summary.stopped, None, "a search below its limits is complete");
    let mut names: Vec<_> = files.entries.iter().map(|entry| entry.path.to_string()).collect();
    names.sort();
    let pattern = LinePattern { pattern: "needle".to_owned(), syntax: Syntax::Literal, binary: BinaryFiles::Skip };
    let lines = guest.agent.find_lines(SearchSpec { name: None, lines: Some(pattern), ..named }).await;
    let lines = lines.expect("a search for lines").lines.into_iter();
    let mut lines: Vec<_> = lines
        .map(|line| (line.path.to_string(), line.line, String::from_utf8_lossy(&line.text.0).into_owned()))
        .collect();
    lines.sort();
    (names, lines)
}

pub(super) async fn searches_find_the_same_after_a_restore(scenario: &Scenario) {
    let guest = scenario.start().await;
    guest
        .agent
        .make_directory(&guest_path("/srv/deep"), dorm_agent_client::Parents::Create, None)
        .await
        .expect("a directory");
    guest.write("/srv/one.txt", "hay\nhay and needle\n").await;
    guest.write("/srv/deep/two.txt", "needle\n").await;
    guest.write("/srv/deep/three", "hay\n").await;
    let before = found(&guest).await;
    let line = |path: &str, number, text: &str| (path.to_owned(), number, text.to_owned());
    assert_eq!(before.0.len(), 2, "{before:?}");
    assert_eq!(before.1, [line("/srv/deep/two.txt", 1, "needle"), line("/srv/one.txt", 2, "hay and needle")]);
    let image = scenario.save(&guest).await;
    let restored = scenario.restore(&image, &guest).await;
    assert_eq!(found(&restored).await, before);
}

/// A file with its attribute, and the process with a label.
async fn described(guest: &Guest) -> (DetailedEntry, Vec<DetailedEntry>, Vec<u64>) {
    let file = guest.agent.describe(&guest_path("/srv/one.txt")).await.expect("a description");
    let entries = guest.agent.describe_entries(&guest_path("/srv"), 1, None, 100).await.expect("a listing");
    let by_label = guest.agent.find_processes(ProcessKey::Label("labelled".to_owned())).await.expect("processes");
    let by_pid = guest.agent.find_processes(ProcessKey::Pid(by_label[0].pid)).await.expect("processes");
    assert!(by_pid.iter().any(|status| status.process == by_label[0].process), "{by_pid:?}");
    (file, entries.items, by_label.into_iter().map(|status| status.process).collect())
}

pub(super) async fn files_and_processes_are_described_the_same_after_a_restore(scenario: &Scenario) {
    let guest = scenario.start().await;
    let srv = guest_path("/srv");
    guest.agent.make_directory(&srv, dorm_agent_client::Parents::Create, None).await.expect("a directory");
    guest.write("/srv/one.txt", "hay").await;
    let name = "user.kind".try_into().expect("a name");
    let attribute = Attribute { name, value: GuestBytes(b"report".to_vec()) };
    let set = guest.agent.set_attributes(&guest_path("/srv/one.txt"), vec![attribute.clone()], Vec::new()).await;
    set.expect("an attribute");
    let argv = ["sh", "-c", "sleep 1000"].map(|word| word.try_into().expect("a word"));
    let process = ProcessSpec { label: Some("labelled".to_owned()), ..ProcessSpec::new(argv.to_vec()) };
    let started = guest.agent.start(&process).await.expect("a process");
    let before = described(&guest).await;
    assert_eq!(before.0.attributes, [attribute]);
    assert_eq!(before.1.iter().map(|entry| &entry.path).collect::<Vec<_>>(), [&before.0.path]);
    assert_eq!(before.2, [started.process]);
    let image = scenario.save(&guest).await;
    let restored = scenario.restore(&image, &guest).await;
    assert_eq!(described(&restored).await, before);
}

async fn events(guest: &Guest, name: &ServiceName) -> Vec<ServiceEvent> {
    guest.agent.service_events(name, 0, 1000).await.expect("the events of a service").items
}

/// Waits until the process of a service has been started this many times, and returns its events.
async fn started(guest: &Guest, name: &ServiceName, times: usize) -> Vec<ServiceEvent> {
    let starts = |events: &[ServiceEvent]| {
        events.iter().filter(|event| matches!(event.event, ServiceChange::Started { .. })).count()
    };
    wait_for(|| async { Some(events(guest, name).await).filter(|events| starts(events) >= times) }).await
}

pub(super) async fn a_service_starts_again_and_continues_after_a_restore(scenario: &Scenario) {
    let guest = scenario.start().await;
    let name: ServiceName = "worker".to_owned().try_into().expect("a name");
    let argv = ["sh", "-c", "exit 3"].map(|word| word.try_into().expect("a word"));
    let restart = RestartRules {
        restart: Restart::Always,
        delay_ms: 10,
        delay_max_ms: 20,
        most: 10_000,
        ..RestartRules::default()
    };
    let process = ProcessSpec::new(argv.to_vec());
    let spec = ServiceSpec { name: name.clone(), process, restart, health: None };
    let uncounted = ServiceSpec { restart: RestartRules { most: 10_001, ..restart }, ..spec.clone() };
    let refused = guest.agent.start_service(uncounted).await;
    assert!(matches!(refused, Err(AgentError::Invalid(_))), "{refused:?}");
    guest.agent.start_service(spec).await.expect("a service that starts");
    let before = started(&guest, &name, 3).await;
    assert!(before.iter().any(|event| matches!(event.event, ServiceChange::Restarting { .. })), "{before:?}");
    let image = scenario.save(&guest).await;
    let restored = scenario.restore(&image, &guest).await;
    let status = restored.agent.service(&name).await.expect("a service that is there");
    assert!(!status.state.is_over(), "{status:?}");
    let after = started(&restored, &name, 6).await;
    assert_eq!(after[..before.len()], before, "events are kept");
    assert!(after.windows(2).all(|pair| pair[0].number + 1 == pair[1].number), "no event is missing");
    restored.agent.stop_service(&name, std::time::Duration::from_secs(5)).await.expect("a service that stops");
    let status = restored.agent.service(&name).await.expect("a service that is there");
    assert_eq!(status.state, ServiceState::Stopped);
}
