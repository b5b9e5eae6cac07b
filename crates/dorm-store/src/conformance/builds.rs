//! Builds and templates are replaced as a whole, listed in the order of their ids, and removed when
//! a change says so.

use std::sync::Arc;
use std::time::Duration;

use dorm_lifecycle::{BuildId, Digest, Egress, FirstProgram, SnapshotId, TemplateId};

use super::sample::{at, bytes, caller, project};
use crate::{
    BuildPlan, BuildRecord, BuildResources, BuildState, Change, Recipe, Store, StoreError, TemplateRecord,
    TemplateSource, TemplateVersion,
};

type Checked = Result<(), StoreError>;

pub(super) fn build(number: u32) -> BuildRecord {
    let plan = BuildPlan {
        recipe: Recipe::Dockerfile { text: format!("FROM base-{number}\n"), arguments: Default::default() },
        context: None,
        tag: Some(format!("tag-{number}")),
        start_command: None,
        ready_command: None,
        is_cached: true,
        step_limit: Duration::from_secs(60),
        resources: BuildResources::default(),
        egress: Egress::closed(),
        template: None,
        login: None,
    };
    BuildRecord {
        id: BuildId::from_random(bytes(number)),
        project: project("local"),
        plan,
        base: None,
        steps: Vec::new(),
        work: None,
        state: BuildState::Queued,
        cancel: false,
        caller: Some(caller()),
        image: None,
        is_tried: false,
        snapshot: None,
        created: at(1_000),
        began: None,
        ended: None,
    }
}

pub(super) fn template(number: u32) -> TemplateRecord {
    let name = format!("space/template_{number}");
    let version = TemplateVersion {
        source: TemplateSource::Snapshot(SnapshotId::from_random(bytes(number))),
        resources: None,
        variables: [("A".to_owned(), "1".to_owned())].into(),
        program: Some(FirstProgram::None),
        build: Some(BuildId::from_random(bytes(number))),
        created: at(1_000),
    };
    TemplateRecord {
        id: TemplateId::from_random(bytes(number)),
        project: project("local"),
        name: name.parse().unwrap_or_else(|_| unreachable!("it is legal")),
        is_public: number == 2,
        tags: [("latest".to_owned(), version)].into(),
        created: at(1_000),
    }
}

pub(super) async fn builds_and_templates_are_rewritten_and_removed(store: Arc<dyn Store>) -> Checked {
    let builds = vec![build(2), build(1)];
    let templates = vec![template(2), template(1)];
    store.commit(Change { builds, templates, ..Change::default() }).await?;
    assert_eq!(store.builds().await?, [build(1), build(2)]);
    assert_eq!(store.build(&build(2).id).await?, Some(build(2)));
    assert_eq!(store.build(&build(77).id).await?, None);
    assert_eq!(store.templates().await?, [template(1), template(2)]);
    let ended = BuildRecord { state: BuildState::Cancelled, ended: Some(at(2_000)), ..build(1) };
    let image: Option<Digest> = "5".repeat(64).parse().ok();
    let mut moved = template(1);
    for version in moved.tags.values_mut() {
        version.source = image.clone().map_or_else(|| version.source.clone(), TemplateSource::Image);
    }
    let change = Change {
        builds: vec![ended.clone()],
        removed_builds: vec![build(2).id, build(77).id],
        templates: vec![moved.clone()],
        removed_templates: vec![template(2).id, template(77).id],
        ..Change::default()
    };
    store.commit(change).await?;
    assert_eq!(store.build(&ended.id).await?.as_ref(), Some(&ended));
    assert_eq!(store.build(&build(2).id).await?, None);
    assert_eq!(store.builds().await?, [ended]);
    assert_eq!(store.templates().await?, [moved]);
    Ok(())
}
