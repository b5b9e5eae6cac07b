//! Starts a run: takes a warm container or creates one, claims it, and boots or restores it; then
//! waits until the agent in it answers.
//!
//! A cold boot needs no template: `StartRoot` in an empty container together with the agent's first
//! answer takes less time than restoring the same state (`docs/decisions`).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dorm_agent_client::Agent;
use dorm_engine::{EngineError, RunSpec};
use dorm_memory_image::IMAGE_FILES;
use tokio::sync::OwnedMutexGuard;

use crate::agents::parts;
use crate::base;
use crate::blocking::{blocking, in_place};
use crate::container::{Container, Order};
use crate::control::{ImageFiles, SOON};
use crate::error::{GvisorError, chain};
use crate::limits;
use crate::memory_pressure::give_kernel_room;
use crate::notes::{Duty, Note, Phase, root_key};
use crate::release::has_bases;
use crate::run::{Run, Turn};
use crate::shared::Shared;
use crate::stream;
use crate::warm_pool::{Base, Progress, WarmContainer};

/// How long the agent may take to answer for the first time.
const HELLO_LIMIT: Duration = Duration::from_secs(120);

/// The initial content of a run.
pub(crate) enum Origin {
    /// None: the first process is started.
    Cold,
    /// A memory image, opened.
    Image(ImageFiles),
}

impl Origin {
    /// Opens the memory image in `directory`.
    pub(crate) fn open(directory: &Path) -> Result<Self, GvisorError> {
        base::open(directory).map(Self::Image)
    }
}

impl Shared {
    /// Starts the run of `spec`, which must be reserved. On failure, removes everything it created.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        operation: &'static str,
        spec: &RunSpec,
        origin: Origin,
        (run, mut turn): (Arc<Run>, OwnedMutexGuard<Turn>),
    ) -> Result<(), EngineError> {
        let begun = self.fill(&run, &mut turn, spec, origin).await;
        match begun {
            Ok(()) => {
                self.watch(&run);
                Ok(())
            }
            Err(error) => {
                run.begin_stopping();
                run.cut(None);
                let removed = match turn.home() {
                    Some(home) => self.host.destroy(&home).await,
                    None => Ok(()),
                };
                match removed {
                    Ok(()) => {
                        turn.forget();
                        self.runs.remove(&run);
                    }
                    // Kept as a broken run, so that `stop` and `sweep` find it again.
                    Err(left) => {
                        tracing::warn!(run = %spec.run, error = %chain(&left), "cannot remove what is left of a run that failed to start")
                    }
                }
                Err(error.of(operation, &spec.run))
            }
        }
    }

    async fn fill(
        self: &Arc<Self>,
        run: &Arc<Run>,
        turn: &mut Turn,
        spec: &RunSpec,
        origin: Origin,
    ) -> Result<(), GvisorError> {
        let _busy = self.warm_pool.hold_back();
        let asked = Instant::now();
        let order = self.order(spec);
        if order.layers.is_empty() {
            let base = Base { image: spec.image.clone(), disk_bytes: spec.resources.disk_bytes };
            self.warm_pool.used(&base, &spec.rootfs);
        }
        let wanted = match &origin {
            Origin::Cold => Progress::Booted,
            Origin::Image(_) => Progress::Empty,
        };
        let WarmContainer { container, note, progress, allowed } = self.container_for(spec, &order, wanted).await?;
        run.take_container(turn, container, note);
        let Some(container) = run.container() else { return Ok(()) };
        container.reach("gvisor: container claimed")?;
        if let Some(lease) = &container.lease {
            if allowed != spec.egress {
                self.host.network.allow(lease.id, &spec.egress).await?;
            }
            container.reach("gvisor: egress allowed")?;
        }
        // An empty container slot needs no mount, and the slots of warm containers are empty.
        if !spec.mounts.is_empty() {
            self.host.set_mounts(&container.home, &spec.mounts).await?;
        }
        let containered = Instant::now();
        let begun = async {
            match (origin, progress) {
                (Origin::Cold, Progress::Booted) => Ok(()),
                (Origin::Cold, Progress::Empty) => container.control.start(container.home.id()).await,
                (Origin::Image(mut files), _) => {
                    let build = turn.note().map(|note| note.build.as_str()).unwrap_or_default();
                    if files.0.len() > IMAGE_FILES.len() && !has_bases(build) {
                        let scratch = self.host.containers.clone();
                        files = blocking(move || base::completed(files, &scratch)).await?;
                    }
                    give_kernel_room(run, container, order.limits.memory_bytes).await;
                    container.control.restore(files).await?;
                    // The memory may have been saved while a signal from inside had stopped the
                    // agent.
                    container.control.rouse(container.home.id(), SOON).await
                }
            }?;
            let begun = Instant::now();
            container.reach("gvisor: guest begun")?;
            self.greet(container, spec.run.generation).await?;
            let (container_took, beginning, greeting) = (containered - asked, begun - containered, begun.elapsed());
            tracing::debug!(run = %spec.run, ?container_took, ?beginning, ?greeting, "run started");
            container.reach("gvisor: agent answered")
        };
        tokio::select! {
            begun = begun => begun?,
            () = container.processes.sandbox.ended() => {
                return Err(container.died());
            }
        }
        container.limit_io(container.io).await;
        turn.set(Phase::Running)?;
        container.reach("gvisor: run noted")
    }

    /// Returns a container that is assigned to the run: a warm one if possible, otherwise a new
    /// one.
    async fn container_for(
        &self,
        spec: &RunSpec,
        order: &Order,
        wanted: Progress,
    ) -> Result<WarmContainer, GvisorError> {
        let duty = Duty::Run { run: spec.run.to_string(), phase: Phase::Beginning };
        while let Some(mut warm) = self.prepared(order, wanted).await {
            warm.note.duty = duty.clone();
            warm.note.memory_bytes = order.limits.memory_bytes;
            let container = &warm.container;
            match claim(container, &warm.note, order).await {
                Ok(()) => return Ok(warm),
                Err(error) => {
                    tracing::warn!(container = container.home.id(), error = %chain(&error), "removing an unusable warm container");
                    self.host.destroy(&container.home).await?;
                }
            }
        }
        let (container, mut note) = self.host.make(order, duty).await?;
        note.memory_bytes = order.limits.memory_bytes;
        Ok(WarmContainer { container, note, progress: Progress::Empty, allowed: order.egress.clone() })
    }

    /// Returns a container that was created ahead: for an expected run, or in the warm pool.
    async fn prepared(&self, order: &Order, wanted: Progress) -> Option<WarmContainer> {
        // One that is booted already is still better than an empty one.
        if wanted == Progress::Empty
            && let Some(expected) = self.expected.ready(order)
        {
            return Some(expected);
        }
        match self.warm_pool.take(order, wanted) {
            Some(warm) => Some(warm),
            None => self.expected.wait(order).await,
        }
    }

    pub(crate) fn order(&self, spec: &RunSpec) -> Order {
        Order {
            root: root_key(&spec.image, &spec.layers),
            rootfs: spec.rootfs.clone(),
            layers: spec.layers.clone(),
            egress: spec.egress.clone(),
            disk_bytes: spec.resources.disk_bytes,
            limits: limits::for_guest(&spec.resources),
            build: self.build_for(spec).filter(|build| build != self.host.builds.newest()),
            agent: spec.build.as_ref().and_then(|writer| in_place(|| self.host.agents.for_images_of(writer))),
        }
    }

    /// Returns the build to run `spec` with. If none can restore its image, the one that wrote it
    /// is named, for the error.
    fn build_for(&self, spec: &RunSpec) -> Option<String> {
        let (writer, _) = parts(spec.build.as_ref()?);
        Some(self.host.builds.for_images_of(writer).unwrap_or(writer).to_owned())
    }

    /// Waits until the agent in the container answers.
    pub(crate) async fn greet(&self, container: &Container, generation: u64) -> Result<(), GvisorError> {
        let (stream, _thread) = in_place(|| stream::open(&container.home))?;
        let answered = tokio::time::timeout(HELLO_LIMIT, Agent::connect(stream, generation)).await;
        let late = |_| GvisorError::Late { operation: "waiting for the agent's first answer", limit: HELLO_LIMIT };
        answered.map_err(late)??;
        Ok(())
    }
}

async fn claim(container: &Container, note: &Note, order: &Order) -> Result<(), GvisorError> {
    if !container.is_alive() {
        return Err(container.died());
    }
    in_place(|| container.home.write(note))?;
    let limits = order.limits;
    container
        .group(move |group| {
            group.thaw()?;
            group.set_limits(&limits)
        })
        .await
}
