//! Builds of images: requests, their state and their log. `crate::builds` carries them out.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use dorm_lifecycle::{BuildId, Digest, SnapshotId};
use dorm_storage::LogPage;
use dorm_store::{BuildPlan, BuildRecord, BuildState, Change, Made, TemplateSource};
use futures_util::Stream;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

use crate::build_plan::{check, contexts_of};
use crate::error::{BuildProblem, ServiceError};
use crate::shared::{Service, Shared};

/// The largest number of lines of a log in one answer.
pub const BUILD_LOG_LINES_MAX: usize = 1000;
/// How many builds of one project may wait or be in progress.
const OPEN_MAX: usize = 100;
/// How many reserved builds one project may have. Their clients may have gone away.
const RESERVED_MAX: usize = 500;
/// How many contexts of one project are kept.
const CONTEXTS_MAX: usize = 200;
/// The longest text of a Dockerfile, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The range of the time limit of a step.
const STEP_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));

/// A build context, as its uploader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadedContext {
    /// The hash that its uploader named it by.
    pub key: Digest,
    /// How many entries it has.
    pub entries: u64,
    /// The length of all its files.
    pub bytes: u64,
}

impl Service {
    /// Receives the context of a build as an archive, and keeps it under a hash that the uploader
    /// has chosen. If there is one with this hash, it stays as it is.
    ///
    /// # Errors
    ///
    /// `NotAdmitted` before the disk is full; an error of the storage for an archive that is cut
    /// short or not accepted. Nothing is left then.
    pub async fn upload_context(
        &self,
        key: &Digest,
        from: impl Stream<Item = io::Result<Bytes>> + Send,
        length: Option<u64>,
    ) -> Result<UploadedContext, ServiceError> {
        self.exists()?;
        let kept = self.shared.storage.contexts().await?.into_iter();
        let kept = kept.filter(|context| context.project == *self.project() && context.key != *key).count();
        if kept >= CONTEXTS_MAX {
            return Err(BuildProblem::ManyContexts(kept).into());
        }
        let archive = self.receive_archive(from, length).await?;
        self.shared.admit_to_disk_of("keep a build context", self.project(), length.unwrap_or(0)).await?;
        let stored = self.shared.storage.import_context(self.project(), key, archive.path()).await?;
        let files = stored.context.entries().map(|(_, entry)| match entry {
            dorm_build::context::Entry::File(file) => file.bytes,
            dorm_build::context::Entry::Directory | dorm_build::context::Entry::Link(_) => 0,
        });
        let (entries, bytes) = files.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file));
        Ok(UploadedContext { key: key.clone(), entries, bytes })
    }

    /// Returns the context with this hash.
    ///
    /// # Errors
    ///
    /// `Build` if there is none.
    pub async fn context(&self, key: &Digest) -> Result<UploadedContext, ServiceError> {
        let found = self.shared.storage.contexts().await?.into_iter();
        let mut found = found.filter(|context| context.project == *self.project() && context.key == *key);
        let listed = found.next().ok_or_else(|| BuildProblem::NoContext(key.clone()))?;
        let stored = self.shared.storage.context(self.project(), key).await?;
        let stored = stored.ok_or_else(|| BuildProblem::NoContext(key.clone()))?;
        let entries = stored.context.entries().count() as u64;
        Ok(UploadedContext { key: listed.key, entries, bytes: listed.bytes })
    }

    /// Requests a build. It is carried out whether or not its caller stays.
    ///
    /// # Errors
    ///
    /// `Build` for a plan that cannot be carried out, a context that does not exist, or too many
    /// builds.
    pub async fn create_build(&self, plan: BuildPlan) -> Result<BuildRecord, ServiceError> {
        if let Some(Made::Build(earlier)) = self.earlier() {
            let found = self.shared.build_record(earlier).await?;
            return found.map(|build| self.shown(build)).ok_or_else(|| ServiceError::made_is_gone("build", earlier));
        }
        self.may_be_built(&plan).await?;
        self.insert_build(plan, BuildState::Queued).await
    }

    /// Records a new build, which is reserved or queued.
    pub(super) async fn insert_build(&self, plan: BuildPlan, state: BuildState) -> Result<BuildRecord, ServiceError> {
        self.to_the_end(|own| async move { own.insert_build_now(plan, state).await }).await
    }

    async fn insert_build_now(&self, plan: BuildPlan, state: BuildState) -> Result<BuildRecord, ServiceError> {
        let shared = &self.shared;
        let _turn = shared.builds.turn.lock().await;
        let _staying = shared.holding.clone().read_owned().await;
        self.exists()?;
        self.has_contexts(&plan).await?;
        self.has_place(&state).await?;
        let build = BuildRecord {
            id: shared.ids().build(),
            project: self.project().clone(),
            plan,
            base: None,
            steps: Vec::new(),
            work: None,
            state,
            cancel: false,
            caller: self.caller(),
            image: None,
            is_tried: false,
            snapshot: None,
            created: shared.now(),
            began: None,
            ended: None,
        };
        let requests = self.made(Made::Build(build.id.clone()));
        shared.commit_known(Change { builds: vec![build.clone()], requests, ..Change::default() }).await?;
        shared.builds.news.notify_waiters();
        Ok(self.shown(build))
    }

    /// Rejects another build in this state if there are too many. The caller holds the turn.
    pub(super) async fn has_place(&self, state: &BuildState) -> Result<(), ServiceError> {
        let is_reserved = *state == BuildState::Reserved;
        let is_same = |build: &&BuildRecord| {
            let is_open = build.project == *self.project() && !build.state.has_ended();
            is_open && (build.state == BuildState::Reserved) == is_reserved
        };
        let count = self.shared.store.builds().await?.iter().filter(is_same).count();
        match count < if is_reserved { RESERVED_MAX } else { OPEN_MAX } {
            true => Ok(()),
            false => Err(BuildProblem::Many(count).into()),
        }
    }

    /// Rejects a plan whose contexts are not all here. The caller holds the turn.
    pub(super) async fn has_contexts(&self, plan: &BuildPlan) -> Result<(), ServiceError> {
        for key in contexts_of(plan) {
            if self.shared.storage.context(self.project(), &key).await?.is_none() {
                return Err(BuildProblem::NoContext(key).into());
            }
        }
        Ok(())
    }

    pub(super) async fn may_be_built(&self, plan: &BuildPlan) -> Result<(), ServiceError> {
        let bad = |what: &str| ServiceError::from(BuildProblem::Bad(what.to_owned()));
        if let dorm_store::Recipe::Dockerfile { text, .. } = &plan.recipe
            && text.len() > TEXT_BYTES_MAX
        {
            return Err(bad("the Dockerfile is larger than 1 MiB"));
        }
        if !(STEP_LIMITS.0..=STEP_LIMITS.1).contains(&plan.step_limit) {
            return Err(bad("the time limit of a step must be from 1 second to 24 hours"));
        }
        plan.egress.check().map_err(dorm_lifecycle::SpecError::from)?;
        self.may_be_named_so(plan).await?;
        check(plan)
    }

    /// Rejects a plan whose result cannot have its names or limits.
    pub(super) async fn may_be_named_so(&self, plan: &BuildPlan) -> Result<(), ServiceError> {
        plan.resources.or_default().check()?;
        if let Some(tag) = &plan.tag {
            dorm_storage::check_tag(&self.free_tag(tag).await?)?;
        }
        if let Some(template) = &plan.template {
            super::templates::check_tags(template.name.as_str(), &template.tags)?;
            if let Some(resources) = &template.resources {
                resources.check()?;
            }
        }
        Ok(())
    }

    /// Returns every build of this project, the newest first.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn builds(&self) -> Result<Vec<BuildRecord>, ServiceError> {
        let mut builds = self.shared.store.builds().await?;
        builds.retain(|build| build.project == *self.project());
        builds.sort_by(|one, other| (other.created, &other.id).cmp(&(one.created, &one.id)));
        Ok(builds.into_iter().map(|build| self.shown(build)).collect())
    }

    /// Returns one build.
    ///
    /// # Errors
    ///
    /// `Build` if there is none.
    pub async fn describe_build(&self, id: &BuildId) -> Result<BuildRecord, ServiceError> {
        self.own_build(id).await.map(|build| self.shown(build))
    }

    pub(super) async fn own_build(&self, id: &BuildId) -> Result<BuildRecord, ServiceError> {
        let found = self.shared.build_record(id).await?.filter(|build| build.project == *self.project());
        found.ok_or_else(|| BuildProblem::Missing(id.to_string()).into())
    }

    /// Waits until a build has ended, for at most `patience`, and returns it.
    ///
    /// # Errors
    ///
    /// `Build` if there is none.
    pub async fn await_build(&self, id: &BuildId, patience: Duration) -> Result<BuildRecord, ServiceError> {
        let until = Instant::now() + patience;
        loop {
            let news = self.follow_build(id).await?;
            let build = self.describe_build(id).await?;
            if build.state.has_ended() || !self.changes_before(news, until).await? {
                return Ok(build);
            }
        }
    }

    /// Cancels a build. One that waits is cancelled at once; one in progress ends soon, and its
    /// record says so when nothing of it is left. One that has ended, or whose result is being
    /// named, stays as it is.
    ///
    /// # Errors
    ///
    /// `Build` if there is none.
    pub async fn cancel_build(&self, id: &BuildId) -> Result<BuildRecord, ServiceError> {
        let shared = &self.shared;
        let turn = shared.builds.turn.lock().await;
        let mut build = self.own_build(id).await?;
        match build.state {
            BuildState::Reserved | BuildState::Queued => {
                (build.state, build.cancel, build.ended) = (BuildState::Cancelled, true, Some(shared.now()));
            }
            BuildState::Running => {
                build.cancel = true;
                // Before the record: if this caller goes away, or does not learn whether the commit
                // was made, the build itself records that it is cancelled.
                shared.builds.cancel(id);
            }
            BuildState::Finishing | BuildState::Succeeded | BuildState::Failed(_) | BuildState::Cancelled => {
                return Ok(self.shown(build));
            }
        }
        shared.write_build(build.clone()).await?;
        drop(turn);
        shared.builds.news.notify_waiters();
        Ok(self.shown(build))
    }

    /// Returns lines of a build's log from an offset on. Without any, waits for some for at most
    /// `patience`, unless the build has ended.
    ///
    /// # Errors
    ///
    /// `Build` if there is none.
    pub async fn build_log(
        &self,
        id: &BuildId,
        from: u64,
        most: usize,
        patience: Duration,
    ) -> Result<(LogPage, BuildRecord), ServiceError> {
        let until = Instant::now() + patience;
        loop {
            let news = self.follow_build(id).await?;
            // The record first: nothing is written to the log after the end of the build.
            let build = self.describe_build(id).await?;
            let page = self.shared.storage.log(&id.into(), from, most.min(BUILD_LOG_LINES_MAX)).await?;
            let is_over = build.state.has_ended() || !page.lines.is_empty();
            if is_over || !self.changes_before(news, until).await? {
                return Ok((page, build));
            }
        }
    }

    async fn follow_build(&self, id: &BuildId) -> Result<OwnedNotified, ServiceError> {
        self.own_build(id).await?;
        Ok(self.shared.followers.follow(id.into()))
    }

    /// Waits for a change; returns whether there was one in time.
    pub(super) async fn changes_before(&self, news: OwnedNotified, until: Instant) -> Result<bool, ServiceError> {
        tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => Err(ServiceError::Stopping),
            changed = tokio::time::timeout_at(until, news) => Ok(changed.is_ok()),
        }
    }

    pub(super) fn shown(&self, mut build: BuildRecord) -> BuildRecord {
        let clock = &self.shared.clock;
        build.created = clock.shown(build.created);
        build.began = build.began.map(|at| clock.shown(at));
        build.ended = build.ended.map(|at| clock.shown(at));
        for step in &mut build.steps {
            step.began = step.began.map(|at| clock.shown(at));
            step.ended = step.ended.map(|at| clock.shown(at));
        }
        build
    }
}

/// Returns whether a build needs a snapshot.
pub(super) fn needs_snapshot(build: &BuildRecord, snapshot: &SnapshotId) -> bool {
    let work = build.work.as_ref().map(|work| &work.snapshot);
    let steps = build.steps.iter().filter_map(|step| step.snapshot.as_ref());
    !build.state.has_ended() && steps.chain(&build.snapshot).chain(work).any(|needed| needed == snapshot)
}

impl Shared {
    /// Returns the builds and templates that need an image.
    pub(crate) async fn build_holders_of_image(&self, image: &Digest) -> Result<Vec<String>, ServiceError> {
        let mut holders = Vec::new();
        for build in self.store.builds().await? {
            if !build.state.has_ended() && [&build.base, &build.image].contains(&&Some(image.clone())) {
                holders.push(format!("build {}", build.id));
            }
        }
        holders.extend(self.template_holders(&TemplateSource::Image(image.clone())).await?);
        Ok(holders)
    }
}
