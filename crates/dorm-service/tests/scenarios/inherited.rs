//! The settings that a sandbox made from a snapshot inherits from the source of the snapshot.

use dorm_lifecycle::{
    Egress, EgressDefault, EgressRules, FirstProgram, HTTPS_PORT, HeaderRule, InheritedSettings, PortAccess, PortRule,
    PortRules, ProjectId, SnapshotKind,
};
use dorm_service::{CheckpointSpec, CreateFrom, CreateSpec, Service, TemplateSpec};
use dorm_store::{SnapshotRecord, Store as _};

use crate::world::{World, base, create, eventually, named};

const KINDS: [SnapshotKind; 2] = [SnapshotKind::Filesystem, SnapshotKind::Memory];

fn from(snapshot: &SnapshotRecord) -> CreateSpec {
    CreateSpec::new(CreateFrom::Snapshot(snapshot.id.clone()))
}

/// Settings of which none is a default.
fn closed() -> CreateSpec {
    let rule = PortRule { access: Some(PortAccess::Public), host: None };
    CreateSpec {
        egress: Some(Egress::closed()),
        port_access: Some(PortAccess::Private),
        port_host: Some(Some("localhost:{port}".parse().unwrap())),
        port_rules: Some(PortRules([(8080, rule)].into())),
        ..named("closed")
    }
}

fn inherited(asked: &CreateSpec) -> InheritedSettings {
    let asked = asked.clone();
    InheritedSettings {
        egress: asked.egress.unwrap(),
        port_access: asked.port_access.unwrap(),
        port_host: asked.port_host.unwrap(),
        port_rules: asked.port_rules.unwrap(),
        program: FirstProgram::None,
    }
}

async fn of(service: &Service, asked: CreateSpec) -> InheritedSettings {
    service.create(asked).await.unwrap().sandbox.spec.inherited()
}

#[tokio::test]
async fn a_sandbox_of_a_closed_source_is_closed_even_when_the_source_is_gone() {
    for kind in KINDS {
        let world = World::new().await;
        let service = world.daemon().await;
        let id = create(&service, closed()).await;
        let snapshot = service.checkpoint(&id, kind).await.unwrap();
        assert_eq!(snapshot.inherited, Some(inherited(&closed())));
        service.terminate(&id).await.unwrap();
        // Another daemon has only the records.
        service.stop().await;
        let service = world.daemon().await;
        let view = service.create(from(&snapshot)).await.unwrap();
        assert_eq!(view.sandbox.spec.inherited(), inherited(&closed()), "{kind:?}");
        assert_eq!(world.host.egress(&view.sandbox.run_id()), Some(Egress::closed()), "{kind:?}");
        world.is_sound().await;
    }
}

#[tokio::test]
async fn each_setting_of_the_request_replaces_that_of_the_snapshot() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, closed()).await;
    for kind in KINDS {
        let snapshot = service.checkpoint(&id, kind).await.unwrap();
        let own = inherited(&closed());
        let open = of(&service, CreateSpec { egress: Some(Egress::Public), ..from(&snapshot) }).await;
        assert_eq!(open, InheritedSettings { egress: Egress::Public, ..own.clone() });
        let public = CreateSpec { port_access: Some(PortAccess::Public), ..from(&snapshot) };
        assert_eq!(of(&service, public).await, InheritedSettings { port_access: PortAccess::Public, ..own.clone() });
        let unchanged = CreateSpec { port_host: Some(None), ..from(&snapshot) };
        assert_eq!(of(&service, unchanged).await, InheritedSettings { port_host: None, ..own.clone() });
        let plain = CreateSpec { port_rules: Some(PortRules::default()), ..from(&snapshot) };
        assert_eq!(of(&service, plain).await, InheritedSettings { port_rules: PortRules::default(), ..own });
    }
}

#[tokio::test]
async fn the_settings_are_those_of_the_moment_of_the_snapshot() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, named("web")).await;
    let before = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    service.set_egress(&id, Egress::closed()).await.unwrap();
    let after = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    service.suspend(&id).await.unwrap();
    let asleep = service.checkpoint(&id, SnapshotKind::Memory).await.unwrap();
    let files = service.snapshot_of_files(&asleep.id).await.unwrap();
    assert_eq!(of(&service, from(&before)).await.egress, Egress::Public);
    for snapshot in [&after, &asleep, &files] {
        assert_eq!(of(&service, from(snapshot)).await.egress, Egress::closed());
    }
    world.is_sound().await;
}

#[tokio::test]
async fn a_snapshot_of_a_descendant_carries_the_settings_of_the_descendant() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, closed()).await;
    let first = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    let child = create(&service, from(&first)).await;
    let second = service.checkpoint(&child, SnapshotKind::Memory).await.unwrap();
    assert_eq!(second.inherited, Some(inherited(&closed())));
    service.update(&child, open_ports()).await.unwrap();
    let third = service.checkpoint(&child, SnapshotKind::Memory).await.unwrap();
    assert_eq!(of(&service, from(&third)).await.port_access, PortAccess::Public);
}

fn open_ports() -> dorm_lifecycle::Update {
    dorm_lifecycle::Update { port_access: Some(PortAccess::Public), ..Default::default() }
}

#[tokio::test]
async fn header_rules_are_inherited_as_references_and_secrets_are_not() {
    let world = World::new().await;
    let service = world.daemon().await;
    let header = HeaderRule {
        host: "api.example.com".to_owned(),
        port: HTTPS_PORT,
        name: "Authorization".to_owned(),
        value: "Bearer {TOKEN}".to_owned(),
        project: ProjectId::local(),
    };
    let (rules, default) = (Vec::new(), EgressDefault::Public);
    let egress = Egress::Rules(EgressRules { rules, default, headers: vec![header] });
    let mut asked = CreateSpec { egress: Some(egress.clone()), ..named("web") };
    asked.secrets.0.insert("KEY".to_owned(), "hunter2".to_owned());
    asked.variables.insert("VARIABLE".to_owned(), "hunter3".to_owned());
    let id = create(&service, asked).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    let text = dorm_store::codec::encode_snapshot(&snapshot).unwrap();
    assert!(text.contains("{TOKEN}") && !text.contains("hunter"), "{text}");
    let child = service.create(from(&snapshot)).await.unwrap().sandbox;
    assert_eq!(child.spec.egress, egress);
    assert!(child.spec.secrets.0.is_empty() && child.spec.variables.0.is_empty());
}

#[tokio::test]
async fn pools_and_templates_of_a_snapshot_inherit_too() {
    let world = World::new().await;
    let service = world.daemon().await;
    let id = create(&service, closed()).await;
    let snapshot = service.checkpoint(&id, SnapshotKind::Filesystem).await.unwrap();
    let template = TemplateSpec {
        name: "app".parse().unwrap(),
        tags: vec!["latest".to_owned()],
        from: CreateFrom::Snapshot(snapshot.id.clone()),
        resources: None,
        variables: Default::default(),
        program: None,
    };
    service.put_template(template).await.unwrap();
    let asked = CreateSpec::new(CreateFrom::Template("app".parse().unwrap()));
    assert_eq!(of(&service, asked).await, inherited(&closed()));
    let pool = dorm_service::PoolSpec {
        name: "workers".parse().unwrap(),
        from: CreateFrom::Snapshot(snapshot.id.clone()),
        program: None,
        resources: None,
        egress: None,
        variables: Default::default(),
        port_access: None,
        labels: Default::default(),
        ready: 1,
        most: None,
    };
    service.create_pool(pool).await.unwrap();
    eventually("a member waits", || async { service.pool("workers").await.unwrap().waiting == 1 }).await;
    let all = world.store.sandboxes(&dorm_store::SandboxFilter::default()).await.unwrap();
    let member = all.into_iter().find(|record| record.sandbox.pool.is_some()).unwrap();
    assert_eq!(member.sandbox.spec.inherited(), inherited(&closed()));
}

#[tokio::test]
async fn without_known_settings_the_defaults_of_the_daemon_hold() {
    let mut world = World::new().await;
    world.settings.port_access = PortAccess::Private;
    let service = world.daemon().await;
    let id = create(&service, CreateSpec { port_access: Some(PortAccess::Public), ..named("web") }).await;
    let settings = CheckpointSpec { kind: SnapshotKind::Filesystem, ..CheckpointSpec::default() };
    let snapshot = service.checkpoint_as(&id, settings).await.unwrap();
    assert_eq!(of(&service, from(&snapshot)).await.port_access, PortAccess::Public);
    // As recorded by version 0.1.0.
    let unknown = SnapshotRecord { inherited: None, ..world.store.snapshot(&snapshot.id).await.unwrap().unwrap() };
    let change = dorm_store::Change { snapshots: vec![unknown], ..Default::default() };
    world.store.commit(change).await.unwrap();
    assert_eq!(of(&service, from(&snapshot)).await, of(&service, base()).await);
}
