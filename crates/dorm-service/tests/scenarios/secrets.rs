//! Secrets of projects, header rules that name them, and trust in the authority of a project.

use std::sync::Arc;

use dorm_agent_client::{GuestString, Parents, ProcessSpec, Variable};
use dorm_lifecycle::{Egress, EgressDefault, EgressRules, HeaderRule, Initiator, ProjectId, SnapshotKind};
use dorm_ports::{SecretValue, Vault, VaultError};
use dorm_service::{Code, CreateFrom, CreateSpec, LostSecrets, SECRETS_MAX, SecretsKey, Service, Settings, Use};
use dorm_store::{ProjectBudgets, Store};

use crate::world::{World, create, named, read, write};

const VALUE: &str = "correct-horse-battery";

async fn world_with(byte: u8) -> World {
    let mut world = World::new().await;
    world.settings =
        Settings { secrets_key: Some(key(byte)), roots: Some(Arc::from("roots of the host")), ..world.settings };
    world
}

fn key(byte: u8) -> SecretsKey {
    SecretsKey::new([byte; 32], LostSecrets::Refuse)
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text.to_owned())
}

fn ruled() -> Egress {
    let header = HeaderRule {
        host: "api.a.test".to_owned(),
        port: 443,
        name: "Authorization".to_owned(),
        value: "Bearer {TOKEN}".to_owned(),
        project: ProjectId::local(),
    };
    Egress::Rules(EgressRules { rules: Vec::new(), default: EgressDefault::Public, headers: vec![header] })
}

async fn text(service: &Service, id: &dorm_lifecycle::SandboxId, path: &str) -> String {
    let (agent, _in_use) = service.agent(id, Use::Files).await.unwrap();
    read(&agent, path).await
}

#[tokio::test]
async fn a_secret_is_recorded_encrypted_for_its_project_alone_and_opened_for_the_proxy() {
    let world = world_with(1).await;
    let service = world.daemon().await;
    let (local, token) = (ProjectId::local(), "TOKEN".parse().unwrap());
    let set = service.set_secret(&token, &value(VALUE)).await.unwrap();
    assert_eq!((set.name.as_str(), set.used_by), ("TOKEN", 0));
    let other: ProjectId = "other".parse().unwrap();
    service.create_project(other.clone(), ProjectBudgets::default()).await.unwrap();
    let records = world.store.projects().await.unwrap();
    assert!(!format!("{records:?}").contains("sealed:1:") && !format!("{records:?}").contains(VALUE));
    let sealed = &records.iter().find(|project| project.id == local).unwrap().secrets[&token].sealed;
    assert!(sealed.starts_with("sealed:1:") && !sealed.contains(VALUE));

    let vault = service.vault();
    assert_eq!(vault.secret(&local, &token).unwrap().expose(), VALUE);
    assert!(matches!(vault.secret(&other, &token), Err(VaultError::Missing { .. })));
    assert_ne!(vault.authority(&local).unwrap(), vault.authority(&other).unwrap());
    let elsewhere = service.for_project(&other).unwrap();
    assert_eq!(elsewhere.secrets().await.unwrap(), []);
    assert_eq!(elsewhere.secret(&token).await.unwrap_err().code(), Code::NotFound);
    elsewhere.remove_secret(&token).await.unwrap();
    assert_eq!(service.secrets().await.unwrap().len(), 1, "another project's secret is not there to be removed");

    service.set_secret(&token, &value("changed")).await.unwrap();
    assert_eq!(vault.secret(&local, &token).unwrap().expose(), "changed");
    service.stop().await;
    let service = world.daemon().await;
    assert_eq!(service.vault().secret(&local, &token).unwrap().expose(), "changed");
    service.remove_secret(&token).await.unwrap();
    service.remove_secret(&token).await.unwrap();
    assert!(matches!(service.vault().secret(&local, &token), Err(VaultError::Missing { .. })));
    world.is_sound().await;
}

#[tokio::test]
async fn a_secret_of_another_key_is_lost_and_says_so() {
    let mut world = world_with(1).await;
    let (local, token) = (ProjectId::local(), "TOKEN".parse().unwrap());
    let service = world.daemon().await;
    service.set_secret(&token, &value(VALUE)).await.unwrap();
    let authority = service.vault().authority(&local).unwrap();
    service.stop().await;
    world.settings.secrets_key = Some(key(2));
    let service = world.daemon().await;
    assert!(matches!(service.vault().secret(&local, &token), Err(VaultError::Lost { .. })));
    assert_ne!(service.vault().authority(&local).unwrap(), authority);
    service.set_secret(&token, &value(VALUE)).await.unwrap();
    assert_eq!(service.vault().secret(&local, &token).unwrap().expose(), VALUE);
}

#[tokio::test]
async fn bad_values_and_too_many_secrets_change_nothing() {
    let world = world_with(1).await;
    let service = world.daemon().await;
    let token = "TOKEN".parse().unwrap();
    for wrong in ["", "two\nlines", " spaced", "caf\u{e9}"] {
        let refused = service.set_secret(&token, &value(wrong)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(wrong.is_empty() || !format!("{refused} {refused:?}").contains(wrong), "{refused:?}");
    }
    assert_eq!(service.secrets().await.unwrap(), []);
    for number in 0..SECRETS_MAX {
        service.set_secret(&format!("T{number}").parse().unwrap(), &value(VALUE)).await.unwrap();
    }
    assert_eq!(service.set_secret(&token, &value(VALUE)).await.unwrap_err().code(), Code::Conflict);
    service.set_secret(&"T7".parse().unwrap(), &value("changed")).await.unwrap();
}

#[tokio::test]
async fn a_rule_belongs_to_the_project_of_its_sandbox() {
    let world = world_with(1).await;
    let service = world.daemon().await;
    let other: ProjectId = "other".parse().unwrap();
    service.create_project(other.clone(), ProjectBudgets::default()).await.unwrap();
    let elsewhere = service.for_project(&other).unwrap();
    // The rule that the caller gives names the project `local`.
    let id = create(&elsewhere, CreateSpec { egress: Some(ruled()), ..named("web") }).await;
    let sandbox = elsewhere.describe(&id).await.unwrap().sandbox;
    assert_eq!(sandbox.spec.egress.headers()[0].project, other);
    elsewhere.set_egress(&id, Egress::closed()).await.unwrap();
    let changed = elsewhere.set_egress(&id, ruled()).await.unwrap().sandbox;
    assert_eq!(changed.spec.egress.headers()[0].project, other);
    world.is_sound().await;
}

#[tokio::test]
async fn a_sandbox_with_header_rules_trusts_the_authority_of_its_project() {
    let world = world_with(1).await;
    let service = world.daemon().await;
    let certificate = service.vault().authority(&ProjectId::local()).unwrap().certificate().unwrap();
    let id = create(&service, CreateSpec { egress: Some(ruled()), ..named("web") }).await;
    assert_eq!(text(&service, &id, "/run/dormouse/ca.pem").await, certificate);
    let bundle = text(&service, &id, "/run/dormouse/ca-bundle.pem").await;
    assert!(bundle.starts_with("roots of the host\n") && bundle.ends_with(&certificate), "the image has no roots");
    let plain = create(&service, named("plain")).await;
    let variables = async |id| {
        let mut spec = ProcessSpec::new(vec![GuestString::new("true").unwrap()]);
        spec.variables.push(Variable::new("PIP_CERT", "/mine").unwrap());
        let spec = service.with_settings(id, spec).await.unwrap();
        let shown = |variable: &Variable| {
            String::from_utf8_lossy(&[variable.name().as_bytes(), b"=", variable.value().as_bytes()].concat())
                .into_owned()
        };
        spec.variables.iter().map(shown).collect::<Vec<_>>()
    };
    let set = variables(&id).await;
    assert!(set.contains(&"SSL_CERT_FILE=/run/dormouse/ca-bundle.pem".to_owned()), "{set:?}");
    assert!(set.contains(&"NODE_EXTRA_CA_CERTS=/run/dormouse/ca.pem".to_owned()), "{set:?}");
    assert_eq!(set.iter().filter(|one| one.starts_with("PIP_CERT=")).collect::<Vec<_>>(), ["PIP_CERT=/mine"]);
    assert_eq!(variables(&plain).await, ["PIP_CERT=/mine"]);

    // The rules may come later, and stay through a sleep.
    service.set_egress(&plain, ruled()).await.unwrap();
    assert_eq!(text(&service, &plain, "/run/dormouse/ca.pem").await, certificate);
    service.set_secret(&"TOKEN".parse().unwrap(), &value(VALUE)).await.unwrap();
    assert_eq!(service.secrets().await.unwrap()[0].used_by, 2);
    service.suspend(&plain).await.unwrap();
    service.evict(&plain).await.unwrap();
    service.set_egress(&plain, Egress::closed()).await.unwrap();
    service.set_egress(&plain, ruled()).await.unwrap();
    service.resume(&plain, Initiator::User).await.unwrap();
    assert_eq!(text(&service, &plain, "/run/dormouse/ca.pem").await, certificate);
    assert!(variables(&plain).await.len() > 5);
    world.is_sound().await;
}

#[tokio::test]
async fn memory_that_comes_from_elsewhere_keeps_no_foreign_trust() {
    let world = world_with(1).await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let (agent, in_use) = service.agent(&id, Use::Files).await.unwrap();
    write(&agent, "/run/dormouse/ca.pem", "a foreign authority").await;
    write(&agent, "/run/dormouse/ca-bundle.pem", "a foreign authority").await;
    drop((agent, in_use));
    let snapshot = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap().id;
    let from = || CreateSpec::new(CreateFrom::Snapshot(snapshot.clone()));
    let plain = create(&service, from()).await;
    assert_eq!(text(&service, &plain, "/run/dormouse/ca.pem").await, "");
    assert_eq!(text(&service, &plain, "/run/dormouse/ca-bundle.pem").await, "roots of the host\n");
    let certificate = service.vault().authority(&ProjectId::local()).unwrap().certificate().unwrap();
    // A file of another kind in its place does not keep a sandbox from waking.
    let odd = create(&service, named("odd")).await;
    let (agent, in_use) = service.agent(&odd, Use::Files).await.unwrap();
    agent.make_directory(&"/run/dormouse/ca.pem".try_into().unwrap(), Parents::Create, None).await.unwrap();
    drop((agent, in_use));
    let refused = service.set_egress(&odd, ruled()).await.unwrap_err();
    assert!(refused.to_string().contains("ca.pem"), "{refused}");
    service.suspend(&odd).await.unwrap();
    service.evict(&odd).await.unwrap();
    service.set_egress(&odd, ruled()).await.unwrap();
    service.resume(&odd, Initiator::User).await.unwrap();
    let trusting = create(&service, CreateSpec { egress: Some(ruled()), ..from() }).await;
    assert_eq!(text(&service, &trusting, "/run/dormouse/ca.pem").await, certificate);
    assert!(!text(&service, &trusting, "/run/dormouse/ca-bundle.pem").await.contains("foreign"));
    world.is_sound().await;
}
