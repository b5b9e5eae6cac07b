//! Creating, finding, changing and terminating sandboxes.

use anyhow::Result;
use dorm_client::Dormouse;
use std::collections::BTreeMap;
use std::time::Duration;

use dorm_client::types::{self, Egress, State, Wake};
use dorm_client::{Order, SandboxFilter, SortBy};

use crate::cases::{Cases, code_of, error_of};

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
}

crate::cases::area! {
    a_sandbox_runs_when_it_is_created_and_is_gone_when_it_is_terminated,
    terminating_twice_is_the_same_as_once,
    a_sandbox_is_found_by_its_name_and_by_its_id,
    a_name_is_taken_while_its_sandbox_lives,
    the_same_idempotency_key_gets_the_same_sandbox,
    settings_are_as_asked_for,
    a_secret_reaches_processes_and_is_never_returned,
    an_image_that_does_not_exist_is_an_error,
    a_setting_that_is_not_valid_is_named,
    a_list_is_filtered_and_ordered,
    properties_are_changed_together,
    limits_change_while_it_runs,
    egress_changes_while_it_runs,
    what_is_used_is_known,
    what_is_terminated_cannot_be_used,
    a_creation_that_is_dropped_can_be_got_again_by_its_key,
}

#[tokio::test]
async fn creation() {
    let mut cases = Cases::new("creation");
    let dormouse = cases.dormouse();
    let on = On { dormouse };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_sandbox_runs_when_it_is_created_and_is_gone_when_it_is_terminated(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").await?;
    assert_eq!(sandbox.state().await?, State::Running);
    assert_eq!(sandbox.terminate().await?.state, State::Terminated);
    assert_eq!(sandbox.state().await?, State::Terminated);
    Ok(())
}

async fn terminating_twice_is_the_same_as_once(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").await?;
    sandbox.terminate().await?;
    assert_eq!(sandbox.terminate().await?.state, State::Terminated);
    Ok(())
}

async fn a_sandbox_is_found_by_its_name_and_by_its_id(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").name("found").await?;
    assert_eq!(dormouse.connect("found").await?.id(), sandbox.id());
    assert_eq!(dormouse.connect(sandbox.id()).await?.id(), sandbox.id());
    sandbox.terminate().await?;
    assert_eq!(code_of(dormouse.connect("found").await), "not_found");
    Ok(())
}

async fn a_name_is_taken_while_its_sandbox_lives(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").name("taken").await?;
    let error = error_of(dormouse.create("base").name("taken").await);
    assert_eq!((error.code(), error.status()), ("conflict", Some(409)));
    sandbox.terminate().await?;
    dormouse.create("base").name("taken").await?.terminate().await?;
    Ok(())
}

async fn the_same_idempotency_key_gets_the_same_sandbox(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let one = dormouse.create("base").idempotency_key("once").await?;
    let other = dormouse.create("base").idempotency_key("once").await?;
    assert_eq!(one.id(), other.id());
    let error = error_of(dormouse.create("base").name("else").idempotency_key("once").await);
    assert_eq!(error.status(), Some(422));
    one.terminate().await?;
    Ok(())
}

async fn settings_are_as_asked_for(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let create = dormouse.create("base").label("team", "red").env("A", "1").cpu_millis(500);
    let create = create.memory_bytes(256 << 20).disk_bytes(1 << 30).timeout(Duration::from_secs(3600));
    let create = create.idle_timeout(Duration::from_secs(600)).wake(Wake::Any).egress(Egress::None);
    let sandbox = create.with(|asked| asked.port_host = Some("localhost:{port}".to_owned())).await?;
    let info = sandbox.info().await?;
    assert_eq!(info.labels, BTreeMap::from([("team".to_owned(), "red".to_owned())]));
    assert_eq!((info.resources.cpu_millis, info.resources.memory_bytes), (500, 256 << 20));
    assert_eq!((info.resources.disk_bytes, info.timeout_secs), (1 << 30, Some(3600.0)));
    assert_eq!((info.idle_timeout_secs, info.wake, info.egress), (Some(600.0), Wake::Any, Egress::None));
    assert_eq!(info.port_host.as_deref(), Some("localhost:{port}"));
    assert_eq!(sandbox.exec("echo $A").await?.stdout_text(), "1\n");
    sandbox.terminate().await?;
    Ok(())
}

async fn a_secret_reaches_processes_and_is_never_returned(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").secret("TOKEN", "hidden-value").await?;
    assert_eq!(sandbox.exec("echo $TOKEN").await?.stdout_text(), "hidden-value\n");
    let info = sandbox.info().await?;
    assert_eq!(info.secrets, ["TOKEN"]);
    assert!(!format!("{info:?}").contains("hidden-value"));
    sandbox.terminate().await?;
    Ok(())
}

async fn an_image_that_does_not_exist_is_an_error(on: &On) -> Result<()> {
    let On { dormouse } = on;
    assert_eq!(code_of(dormouse.create("no-such-image").await), "not_found");
    Ok(())
}

async fn a_setting_that_is_not_valid_is_named(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let error = error_of(dormouse.create("base").name("Not A Name").await);
    assert_eq!((error.code(), error.status()), ("invalid_argument", Some(400)));
    let neither = error_of(dormouse.create_with(types::CreateSandbox::default()).await);
    assert_eq!(neither.code(), "invalid_argument");
    Ok(())
}

async fn a_list_is_filtered_and_ordered(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let one = dormouse.create("base").name("list-1").label("list", "yes").await?;
    let two = dormouse.create("base").name("list-2").label("list", "yes").await?;
    let labels = vec![("list".to_owned(), "yes".to_owned())];
    let filter = SandboxFilter { labels, ..SandboxFilter::default() };
    let ids = |found: Vec<types::Sandbox>| found.into_iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(dormouse.sandboxes(&filter).await?), [one.id(), two.id()]);
    let newest = SandboxFilter { order: Order::Desc, sort: SortBy::Started, most: Some(1), ..filter.clone() };
    assert_eq!(ids(dormouse.sandboxes(&newest).await?), [two.id()]);
    let named = SandboxFilter { name: Some("list-1".to_owned()), ..filter.clone() };
    assert_eq!(ids(dormouse.sandboxes(&named).await?), [one.id()]);
    one.terminate().await?;
    let ended = SandboxFilter { states: vec!["terminated".to_owned()], ..filter };
    assert_eq!(ids(dormouse.sandboxes(&ended).await?), [one.id()]);
    two.terminate().await?;
    Ok(())
}

async fn properties_are_changed_together(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").name("before").label("a", "1").await?;
    let labels = BTreeMap::from([("a".to_owned(), None), ("b".to_owned(), Some("2".to_owned()))]);
    let asked = types::UpdateSandbox {
        name: Some("after".to_owned()),
        wake: Some(Wake::Never),
        labels,
        ..types::UpdateSandbox::default()
    };
    let changed = sandbox.update(&asked).await?;
    assert_eq!((changed.name.as_deref(), changed.wake), (Some("after"), Wake::Never));
    assert_eq!(changed.labels, BTreeMap::from([("b".to_owned(), "2".to_owned())]));
    sandbox.terminate().await?;
    Ok(())
}

async fn limits_change_while_it_runs(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").memory_bytes(256 << 20).await?;
    let resources = types::ResizeRequest { cpu_millis: Some(700), memory_bytes: Some(384 << 20) };
    let asked = types::UpdateSandbox { resources: Some(resources), ..types::UpdateSandbox::default() };
    let changed = sandbox.update(&asked).await?;
    assert_eq!((changed.resources.cpu_millis, changed.resources.memory_bytes), (700, 384 << 20));
    sandbox.terminate().await?;
    Ok(())
}

async fn egress_changes_while_it_runs(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").await?;
    assert_eq!(sandbox.set_egress(Egress::Closed).await?.egress, Egress::Closed);
    sandbox.terminate().await?;
    Ok(())
}

async fn what_is_used_is_known(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").memory_bytes(512 << 20).await?;
    let usage = sandbox.usage().await?;
    assert!(usage.memory_bytes > 0, "{usage:?}");
    sandbox.terminate().await?;
    Ok(())
}

async fn what_is_terminated_cannot_be_used(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let sandbox = dormouse.create("base").await?;
    sandbox.terminate().await?;
    assert_eq!(code_of(sandbox.exec("true").await), "gone");
    assert_eq!(code_of(sandbox.files().read("/etc/hostname").await), "gone");
    Ok(())
}

async fn a_creation_that_is_dropped_can_be_got_again_by_its_key(on: &On) -> Result<()> {
    let On { dormouse } = on;
    let create = dormouse.create("base").idempotency_key("dropped");
    let started = tokio::spawn(async move { create.await });
    started.abort();
    let sandbox = dormouse.create("base").idempotency_key("dropped").await?;
    assert_eq!(sandbox.state().await?, State::Running);
    sandbox.terminate().await?;
    Ok(())
}
