//! Removes contexts, logs and records of builds that are not needed any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dorm_lifecycle::{Digest, ProjectId};
use dorm_storage::ListedContext;
use dorm_store::{BuildRecord, BuildState, Change};

use super::{Builder, Stop};
use crate::build_plan::contexts_of;
use crate::error::{ServiceError, chain};
use crate::ops::collect::{CollectorItem, CollectorItemKind, Verdict};
use crate::shared::Service;

/// How long a context is kept that no build has used yet.
const UNUSED: Duration = Duration::from_secs(3600);
/// How long the record and the log of an ended build are kept.
const KEPT: Duration = Duration::from_secs(14 * 86_400);
/// How many ended builds of a project are kept.
const KEPT_MAX: usize = 500;

impl Builder {
    /// Removes the contexts of the build, unless another one needs them.
    pub(super) async fn clear(&self) -> Result<(), Stop> {
        let contexts = contexts_of(&self.record.plan);
        let own = |project: &ProjectId, key: &Digest| project == self.service.project() && contexts.contains(key);
        if let Err(error) = self.service.clear_contexts(own).await {
            let error = chain(&error);
            tracing::warn!(build = %self.record.id, error, "cannot remove the context of a build; retrying later");
        }
        Ok(())
    }
}

impl Service {
    /// Removes contexts for which `is_due`, except those that a build still needs.
    async fn clear_contexts(&self, is_due: impl Fn(&ProjectId, &Digest) -> bool) -> Result<(), ServiceError> {
        let shared = &self.shared;
        let _turn = shared.builds.turn.lock().await;
        if !shared.quarantined.last().rows().is_empty() {
            // One of them may be the record of a build.
            return Ok(());
        }
        let builds = shared.store.builds().await?;
        let open = || builds.iter().filter(|build| !build.state.has_ended());
        // The client of a reserved build may count on any context that it was told of.
        let reserved: BTreeSet<&ProjectId> =
            open().filter(|build| build.state == BuildState::Reserved).map(|build| &build.project).collect();
        let needed: BTreeSet<(&ProjectId, Digest)> = open()
            .flat_map(|build| contexts_of(&build.plan).into_iter().map(move |context| (&build.project, context)))
            .collect();
        for context in shared.storage.contexts().await? {
            let is_needed =
                reserved.contains(&context.project) || needed.contains(&(&context.project, context.key.clone()));
            if is_due(&context.project, &context.key) && !is_needed {
                shared.storage.remove_context(&context.project, &context.key).await?;
            }
        }
        Ok(())
    }

    /// Returns the contexts on the disk, with the builds that need them.
    pub(crate) async fn context_items(&self) -> Result<Vec<CollectorItem>, ServiceError> {
        let contexts = self.shared.storage.contexts().await?;
        let mut builds = self.shared.store.builds().await?;
        builds.retain(|build| !build.state.has_ended());
        let item = |context: ListedContext| {
            let needs = |build: &&BuildRecord| {
                build.project == context.project && contexts_of(&build.plan).contains(&context.key)
            };
            let mut why: Vec<_> =
                builds.iter().filter(needs).map(|build| format!("build {} needs it", build.id)).collect();
            if why.is_empty() {
                why.push("no build needs it yet: it is removed an hour after its upload".to_owned());
            }
            CollectorItem {
                kind: CollectorItemKind::BuildContext,
                id: format!("{}/{}", context.project, context.key),
                bytes: context.bytes,
                verdict: Verdict::Kept,
                why,
            }
        };
        Ok(contexts.into_iter().map(item).collect())
    }

    /// Removes contexts that were not used for a time, and what is left of builds that ended long
    /// ago.
    pub(super) async fn clear_builds(&self) -> Result<(), ServiceError> {
        let shared = &self.shared;
        let old: BTreeSet<(ProjectId, Digest)> = shared
            .storage
            .contexts()
            .await?
            .into_iter()
            .filter(|context| Duration::from_secs(context.age_secs) >= UNUSED)
            .map(|context| (context.project, context.key))
            .collect();
        if !old.is_empty() {
            self.clear_contexts(|project, key| old.contains(&(project.clone(), key.clone()))).await?;
        }
        let mut ended: BTreeMap<ProjectId, Vec<BuildRecord>> = BTreeMap::new();
        for build in shared.store.builds().await? {
            if build.ended.is_some() {
                ended.entry(build.project.clone()).or_default().push(build);
            }
        }
        let now = shared.now();
        for builds in ended.values_mut() {
            builds.sort_by_key(|build| std::cmp::Reverse(build.ended));
            let is_old = |build: &BuildRecord| build.ended.is_some_and(|ended| now.since(ended) >= KEPT);
            let due = builds.iter().enumerate().filter(|(at, build)| *at >= KEPT_MAX || is_old(build));
            for (_, build) in due {
                // The log first: its record says that there is one.
                shared.storage.remove_log(&(&build.id).into()).await?;
                let change = Change { removed_builds: vec![build.id.clone()], ..Change::default() };
                shared.commit_known(change).await?;
            }
        }
        Ok(())
    }
}
