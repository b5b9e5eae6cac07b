//! Makes the image of a build, tries it, prepares its template, and names the result.

use std::time::Duration;

use dorm_agent_client::{ExitStatus, Offsets, Output};
use dorm_lifecycle::{Digest, FirstProgram, Initiator, OnTimeout, SandboxId, SnapshotKind, Timeouts};
use dorm_storage::{Image, LogStream, StorageError};
use dorm_store::{BuildState, BuildTemplate, BuildWork, Change, Removal, TemplateSource, TemplateVersion};
use futures_util::StreamExt as _;

use super::carry::{From, GRACE, exited};
use super::plan::Stages;
use super::{Builder, Stop};
use crate::activity::Use;
use crate::error::{ServiceError, chain, host_part};
use crate::image_settings;
use crate::messages::{Carries, SnapshotSpec};
use crate::ops::compose::{TRIAL_LABEL, check};
use crate::ops::create::{CreateFrom, CreateSpec};

impl Builder {
    /// Makes the image and tries it.
    pub(super) async fn compose(&mut self, base: &Image, stages: &Stages, from: From) -> Result<(), Stop> {
        let (config, key) = stages.finish(base, &self.record.plan);
        check(&config).map_err(|error| self.stop(error))?;
        let key = (self.record.plan.is_cached && stages.first_forced() == stages.all.len()).then_some(key);
        if let Some(image) = self.service.tried(key.as_deref()).await.map_err(|error| self.stop(error))? {
            self.diary.say(None, "the image exists already").await;
            return self.update(|record| (record.image, record.is_tried) = (Some(image.digest), true)).await;
        }
        self.diary.say(None, "creating the image").await;
        let shared = self.service.shared.clone();
        shared.admit_write("make an image", 0).await.map_err(|error| self.stop(error))?;
        let admitted = shared.admit_to_disk_of("make an image", self.service.project(), 0).await;
        admitted.map_err(|error| self.stop(error))?;
        let image = match from {
            From::Image(image) => shared.storage.compose_image(&image, None, config, key, |_| ()).await,
            From::Snapshot(id, _) => {
                let used = self.service.use_snapshot(&id).await;
                let (_using, snapshot) = used.map_err(|error| self.stop(error))?;
                let over = Some(&snapshot.saved_state);
                shared.storage.compose_image(&snapshot.image, over, config, key, |_| ()).await
            }
        };
        let image = image.map_err(|error| self.stop(host_part(error)))?;
        self.update(|record| (record.image, record.is_tried) = (Some(image.digest), false)).await
    }

    /// Suspends and resumes a sandbox of the image.
    pub(super) async fn try_image(&mut self) -> Result<(), Stop> {
        let Some(image) = self.image().await?.filter(|_| !self.record.is_tried) else { return Ok(()) };
        self.diary.say(None, "testing the image: a sandbox of it is suspended and resumed").await;
        self.service.prepare(&image.digest);
        let spec = CreateSpec {
            suspendable: Some(true),
            labels: [(TRIAL_LABEL.to_owned(), image.digest.to_string())].into(),
            ..self.of_image(&image.digest)
        };
        let work = self.begin(spec).await?;
        let mut config = image.config.clone();
        if self.record.plan.template.is_some() && self.starts(&image) {
            // The program is started for the template, where it is noticed if it ends.
            config.ready = None;
        }
        let tried = self.unless(self.service.sleep_and_wake(&work.sandbox, &config)).await?;
        tried.map_err(|error| self.stop(error))?;
        self.end_sandbox(&work.sandbox).await?;
        self.update(|record| (record.work, record.is_tried) = (None, true)).await
    }

    async fn image(&self) -> Result<Option<Image>, Stop> {
        let Some(image) = &self.record.image else { return Ok(None) };
        let found = self.service.shared.storage.image(image).await;
        found.map(Some).map_err(|error| self.stop(error.into()))
    }

    fn of_image(&self, image: &Digest) -> CreateSpec {
        let limit: Duration = self.record.plan.step_limit + GRACE;
        CreateSpec {
            on_timeout: Some(OnTimeout::Terminate),
            timeouts: Timeouts { max_run: Some(limit), ..Timeouts::default() },
            ..CreateSpec::new(CreateFrom::Image(image.to_string()))
        }
    }

    /// Creates a sandbox that is no step.
    async fn begin(&mut self, spec: CreateSpec) -> Result<BuildWork, Stop> {
        let ids = self.service.shared.ids();
        let work = BuildWork { sandbox: ids.sandbox(), snapshot: ids.snapshot() };
        let planned = work.clone();
        self.update(|record| record.work = Some(planned)).await?;
        self.create(None, &work.sandbox, spec).await?;
        Ok(work)
    }

    /// Starts the program of a template, waits until it is ready, and takes a memory snapshot.
    pub(super) async fn prepare_template(&mut self) -> Result<(), Stop> {
        let Some(template) = self.record.plan.template.clone() else { return Ok(()) };
        let Some(image) = self.image().await? else { return Ok(()) };
        if self.record.snapshot.is_some() || !self.starts(&image) {
            return Ok(());
        }
        self.diary.say(None, "starting the program of the template").await;
        let BuildTemplate { resources, variables, .. } = template;
        let egress = Some(self.record.plan.egress.clone());
        let spec = CreateSpec { resources, variables, egress, ..self.of_image(&image.digest) };
        let work = self.begin(spec).await?;
        let ready = self.until_ready(&work.sandbox, &image).await;
        self.diary.flush(None).await;
        ready?;
        self.diary.say(None, "the program is ready: taking a memory snapshot").await;
        self.admit_snapshot().await?;
        let by = self.service.asked_by(Initiator::User);
        // Its egress is that of the build, not of the sandboxes of the template.
        let asked = SnapshotSpec {
            carries: Carries::Nothing,
            ..SnapshotSpec::new(work.snapshot.clone(), SnapshotKind::Memory, Removal::WhenFree, by)
        };
        self.service.snapshot_as(&work.sandbox, asked).await.map_err(|error| self.stop(error))?;
        self.end_sandbox(&work.sandbox).await?;
        self.diary.sync().await;
        self.update(|record| (record.work, record.snapshot) = (None, Some(work.snapshot))).await
    }

    /// Whether the template stands for a memory snapshot of a program.
    fn starts(&self, image: &Image) -> bool {
        let plan = &self.record.plan;
        (plan.start_command.is_some() || plan.ready_command.is_some()) && !image.config.start().is_empty()
    }

    async fn until_ready(&mut self, sandbox: &SandboxId, image: &Image) -> Result<(), Stop> {
        let limit = self.record.plan.step_limit;
        let started = self.unless(self.service.start_image(sandbox)).await?;
        let process = started.map_err(|error| self.stop(error))?.process;
        let agent = self.unless(self.service.agent(sandbox, Use::Exec)).await?;
        let (agent, _in_use) = agent.map_err(|error| self.stop(error))?;
        let output = self.unless(agent.output(process, Offsets::BEGINNING)).await?;
        let mut output = output.map_err(|error| self.stop(error.into()))?;
        let config = image.config.clone();
        let asking = agent.clone();
        let ready = async move { image_settings::until_ready(&asking, &config, limit).await };
        let mut ready = std::pin::pin!(ready);
        let mut is_open = true;
        loop {
            let item = tokio::select! {
                biased;
                () = self.service.shared.stopping.cancelled() => return Err(Stop::Later(ServiceError::Stopping)),
                () = self.cancel.cancelled() => return Err(Stop::Cancelled),
                item = output.next(), if is_open => item,
                ready = &mut ready => return ready.map_err(|error| self.stop(error)),
            };
            match item {
                Some(Ok(Output::Stdout { bytes, .. })) => self.diary.output(None, LogStream::Stdout, &bytes).await,
                Some(Ok(Output::Stderr { bytes, .. })) => self.diary.output(None, LogStream::Stderr, &bytes).await,
                Some(Ok(Output::Lost { .. })) => {}
                // It may have left a program running, which the ready command asks.
                Some(Ok(Output::Exited(ExitStatus::Code(0)))) | None => is_open = false,
                Some(Ok(Output::Exited(status))) => return Err(exited("the program", status)),
                Some(Err(error)) => return Err(self.stop(error.into())),
            }
        }
    }

    /// Gives the result its names. All of it can be repeated.
    pub(super) async fn name(&mut self) -> Result<(), Stop> {
        let shared = self.service.shared.clone();
        let Some(image) = self.record.image.clone() else {
            return Err(Stop::failed(dorm_store::Code::Internal, "the build has no image"));
        };
        if let Some(tag) = self.record.plan.tag.clone() {
            let tagged = self.service.tag_image(&image, &tag).await;
            tagged.map_err(|error| self.stop(error))?;
        }
        self.diary.say(None, &format!("succeeded: image {image}")).await;
        self.diary.sync().await;
        let _turn = shared.builds.turn.lock().await;
        let now = shared.now();
        let mut templates = Vec::new();
        if let Some(BuildTemplate { name, tags, resources, variables }) = self.record.plan.template.clone() {
            let source = match &self.record.snapshot {
                Some(snapshot) => TemplateSource::Snapshot(snapshot.clone()),
                None => TemplateSource::Image(image),
            };
            let version = TemplateVersion {
                source,
                resources,
                variables,
                program: Some(FirstProgram::None),
                build: Some(self.record.id.clone()),
                created: now,
            };
            let mut template = self.service.template_or_new(&name).await.map_err(|error| self.stop(error))?;
            template.tags.extend(tags.into_iter().map(|tag| (tag, version.clone())));
            templates.push(template);
        }
        (self.record.state, self.record.ended) = (BuildState::Succeeded, Some(now));
        self.record.plan.login = None;
        let change = Change { builds: vec![self.record.clone()], templates, ..Change::default() };
        shared.commit_known(change).await?;
        // A tag may have been moved from a snapshot that nothing else needs.
        shared.removals.poke();
        Ok(())
    }

    /// Removes the image of a build that does not succeed, unless it has another use.
    pub(super) async fn discard_image(&mut self) -> Result<(), Stop> {
        let Some(digest) = self.record.image.clone() else { return Ok(()) };
        let began = self.record.began.map(|began| self.service.shared.clock.shown(began));
        match self.service.shared.storage.image(&digest).await {
            Ok(image) if image.tags.is_empty() && began.is_some_and(|began| image.created >= began) => {
                // The build itself must not hold it.
                self.update(|record| record.image = None).await?;
                if let Err(error) = self.service.remove_image(&digest).await {
                    tracing::warn!(image = %digest, error = %chain(&error), "cannot remove the image of a failed build");
                }
                Ok(())
            }
            Ok(_) | Err(StorageError::NoImage { .. }) => Ok(()),
            Err(error) => Err(self.stop(error.into())),
        }
    }
}
