//! Projects, keys, secrets and pools.

use anyhow::Result;
use std::collections::BTreeMap;

use dorm_client::types::{
    ClaimRequest, CreateKey, CreatePool, CreateProject, KeyScope, ProjectBudgets, ResizePool, Secret, SetSecret, State,
};
use dorm_client::{Dormouse, SandboxFilter};

use crate::cases::{Cases, code_of, eventually};

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    address: String,
}

crate::cases::area! {
    a_project_separates_its_users,
    a_budget_limits_a_project,
    an_empty_project_is_deleted,
    a_key_that_only_reads_changes_nothing,
    a_key_of_a_sandbox_reaches_that_alone,
    a_secret_is_set_changed_and_never_shown,
    a_pool_has_sandboxes_ready,
    a_pool_changes_its_size,
    a_pool_is_deleted,
}

#[tokio::test]
async fn projects() {
    let mut cases = Cases::new("projects");
    let dormouse = cases.dormouse();
    let address = cases.place().daemon().address().to_owned();
    let on = On { dormouse, address };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_project_separates_its_users(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let client = on.dormouse.client();
    let sandbox = dormouse.create("base").name("theirs").await?;
    let budgets = ProjectBudgets { sandboxes: Some(1), ..ProjectBudgets::default() };
    client.create_project(&CreateProject { name: "other".to_owned(), budgets }).await?;
    let other = dormouse.in_project("other");
    assert_eq!(other.client().info().await?.project, "other");
    assert!(other.sandboxes(&SandboxFilter::default()).await?.is_empty());
    assert_eq!(code_of(other.connect("theirs").await), "not_found");
    sandbox.terminate().await?;
    Ok(())
}

async fn a_budget_limits_a_project(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let client = on.dormouse.client();
    let other = dormouse.in_project("other");
    let sandbox = other.create("base").await?;
    let refused = other.create("base").await;
    assert!(refused.is_err_and(|error| !error.to_string().is_empty()));
    sandbox.terminate().await?;
    let budgets = ProjectBudgets { running: Some(5), ..ProjectBudgets::default() };
    assert_eq!(client.set_budgets("other", &budgets).await?.budgets, budgets);
    assert_eq!(client.project("other").await?.used.sandboxes, 0);
    Ok(())
}

async fn an_empty_project_is_deleted(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    assert!(client.projects().await?.iter().any(|project| project.name == "other"));
    client.delete_project("other").await?;
    assert_eq!(code_of(client.project("other").await), "not_found");
    Ok(())
}

async fn a_key_that_only_reads_changes_nothing(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    let with_key = |key: &str| Dormouse::at(&on.address, Some(key), None);
    let asked = CreateKey { name: "reader".to_owned(), scope: KeyScope::ReadOnly, ..CreateKey::default() };
    let key = client.create_key(&asked).await?;
    let reader = with_key(&key.key)?;
    assert_eq!(reader.client().info().await?.project, "local");
    assert_eq!(code_of(reader.create("base").await), "forbidden");
    assert!(client.keys().await?.iter().any(|one| one.id == key.record.id));
    client.delete_key(&key.record.id).await?;
    assert_eq!(code_of(reader.client().info().await), "unauthorized");
    Ok(())
}

async fn a_key_of_a_sandbox_reaches_that_alone(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let client = on.dormouse.client();
    let with_key = |key: &str| Dormouse::at(&on.address, Some(key), None);
    let (one, two) = (dormouse.create("base").await?, dormouse.create("base").await?);
    let sandbox = Some(one.id().to_owned());
    let asked = CreateKey { scope: KeyScope::Sandbox, sandbox, ..CreateKey::default() };
    let own = with_key(&client.create_key(&asked).await?.key)?;
    assert_eq!(own.sandbox(one.id()).exec("echo mine").await?.stdout_text(), "mine\n");
    let code = code_of(own.sandbox(two.id()).exec("echo theirs").await);
    assert!(["forbidden", "not_found"].contains(&code.as_str()), "{code}");
    one.terminate().await?;
    two.terminate().await?;
    Ok(())
}

async fn a_secret_is_set_changed_and_never_shown(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    for value in ["one", "two"] {
        client.set_secret("api", &SetSecret { value: Secret(value.to_owned()) }).await?;
    }
    let secret = client.secret("api").await?;
    assert!(secret.changed_at >= secret.created_at);
    assert_eq!(client.secrets().await?, [secret]);
    client.delete_secret("api").await?;
    assert_eq!(code_of(client.secret("api").await), "not_found");
    Ok(())
}

async fn a_pool_has_sandboxes_ready(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let client = on.dormouse.client();
    let pool = CreatePool {
        name: "ready".to_owned(),
        image: Some("base".to_owned()),
        labels: BTreeMap::from([("pool".to_owned(), "yes".to_owned())]),
        ready: 1,
        most: Some(2),
        ..CreatePool::default()
    };
    client.create_pool(&pool).await?;
    let asked = ClaimRequest {
        name: Some("claimed".to_owned()),
        env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
        max_wait_secs: Some(60.0),
        ..ClaimRequest::default()
    };
    let claimed = client.claim("ready", &asked).await?;
    assert_eq!((claimed.state, claimed.labels["pool"].as_str()), (State::Running, "yes"));
    let sandbox = dormouse.sandbox(&claimed.id);
    assert_eq!(sandbox.exec("echo $A").await?.stdout_text(), "1\n");
    eventually("the claim is counted", || async { Ok(client.pool("ready").await?.claimed == 1) }).await?;
    sandbox.terminate().await?;
    Ok(())
}

async fn a_pool_changes_its_size(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    // A sandbox that is being made could not be finished.
    eventually("the pool is full", || async { Ok(client.pool("ready").await?.waiting == 1) }).await?;
    assert_eq!(client.resize_pool("ready", &ResizePool { ready: 0, most: None }).await?.ready, 0);
    assert_eq!(client.pools().await?.len(), 1);
    Ok(())
}

async fn a_pool_is_deleted(on: &On) -> Result<()> {
    let client = on.dormouse.client();
    client.delete_pool("ready").await?;
    assert_eq!(code_of(client.pool("ready").await), "not_found");
    Ok(())
}
