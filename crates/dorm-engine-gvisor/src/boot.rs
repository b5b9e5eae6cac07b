//! Beginning a run: a hull is taken or made, claimed, and started or filled; then the agent inside must answer.
//!
//! A cold boot needs no template: in an empty hull `StartRoot` and the agent's first answer take less time than a
//! restore of the same (`docs/decisions`).

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dorm_agent_client::Agent;
use dorm_engine::{EngineError, RunSpec};
use dorm_lifecycle::Egress;
use tokio::sync::OwnedMutexGuard;

use crate::cgroup::Limits;
use crate::control::{ImageFiles, SOON};
use crate::engine::Shared;
use crate::error::{GvisorError, chain};
use crate::hull::{Hull, Order, in_place};
use crate::notes::{Duty, Note, Phase, Reach, root_key};
use crate::relief::give_kernel_room;
use crate::run::{Run, Turn};
use crate::spares::{Progress, Spare};
use crate::stream;

/// How long the agent may take to answer the first time.
const HELLO_LIMIT: Duration = Duration::from_secs(120);

/// The files of a memory image.
pub(crate) const IMAGE_FILES: [&str; 3] = ["checkpoint.img", "pages_meta.img", "pages.img"];

/// What a run begins with.
pub(crate) enum Origin {
    /// Nothing: its first process is started.
    Cold,
    /// A memory image, opened.
    Image(ImageFiles),
}

impl Origin {
    /// Opens the image in `directory`; a second descriptor of the same files is made for each try.
    #[allow(clippy::disallowed_methods, reason = "it is called in place")]
    pub(crate) fn open(directory: &Path) -> Result<Self, GvisorError> {
        let open = |name: &str| {
            let path = directory.join(name);
            let file = fs::File::open(&path).map_err(|source| GvisorError::file("open", &path, source))?;
            let facts = file.metadata().map_err(|source| GvisorError::file("look at", &path, source))?;
            if !facts.is_file() || (facts.len() == 0 && name != "pages.img") {
                return Err(GvisorError::file("use", path, io::Error::from(io::ErrorKind::InvalidData)));
            }
            Ok(file.into())
        };
        let [first, second, third] = IMAGE_FILES;
        Ok(Self::Image(ImageFiles([open(first)?, open(second)?, open(third)?])))
    }
}

impl Shared {
    /// Begins `spec`'s run, which has been reserved. Whatever fails, nothing is left of it.
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
                    // Kept as a broken run, so that stop and sweep come back to it.
                    Err(left) => {
                        tracing::warn!(run = %spec.run, error = %chain(&left), "a run that could not begin was left behind")
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
        let _busy = self.spares.hold_back();
        let asked = Instant::now();
        let order = self.order(spec);
        if order.layers.is_empty() {
            self.spares.used(&spec.image, &spec.rootfs);
        }
        let wanted = match &origin {
            Origin::Cold => Progress::Booted,
            Origin::Image(_) => Progress::Empty,
        };
        let Spare { hull, note, progress } = self.hull_for(spec, &order, wanted).await?;
        run.take_hull(turn, hull, note);
        let Some(hull) = run.hull() else { return Ok(()) };
        hull.reach("gvisor: hull claimed")?;
        if let Some(lease) = &hull.lease {
            self.host.network.allow(lease.id, &spec.egress).await?;
            hull.reach("gvisor: egress allowed")?;
        }
        // On an empty slot nothing is to be put; spare hulls have nothing else.
        if !spec.mounts.is_empty() {
            self.host.set_mounts(&hull.home, &spec.mounts).await?;
        }
        let hulled = Instant::now();
        let begun = async {
            match (origin, progress) {
                (Origin::Cold, Progress::Booted) => Ok(()),
                (Origin::Cold, Progress::Empty) => hull.control.start(hull.home.id()).await,
                (Origin::Image(files), _) => {
                    give_kernel_room(run, hull, order.limits.memory_bytes).await;
                    hull.control.restore(files).await?;
                    // It may have been captured with its agent stopped by a signal from inside.
                    hull.control.rouse(hull.home.id(), SOON).await
                }
            }?;
            let begun = Instant::now();
            hull.reach("gvisor: guest begun")?;
            self.greet(hull, spec.run.generation).await?;
            let (hull_took, beginning, greeting) = (hulled - asked, begun - hulled, begun.elapsed());
            tracing::debug!(run = %spec.run, ?hull_took, ?beginning, ?greeting, "begun");
            hull.reach("gvisor: agent answered")
        };
        tokio::select! {
            begun = begun => begun?,
            () = hull.processes.sandbox.ended() => {
                return Err(hull.died());
            }
        }
        hull.limit_io(hull.io).await;
        turn.set(Phase::Running)?;
        hull.reach("gvisor: run noted")
    }

    /// A hull that is already the run's: a spare one, or else a new one.
    async fn hull_for(&self, spec: &RunSpec, order: &Order, wanted: Progress) -> Result<Spare, GvisorError> {
        let duty = Duty::Run { run: spec.run.to_string(), phase: Phase::Beginning };
        while let Some(mut spare) = self.spares.take(order, wanted) {
            spare.note.duty = duty.clone();
            spare.note.memory_bytes = order.limits.memory_bytes;
            let hull = &spare.hull;
            match claim(hull, &spare.note, order).await {
                Ok(()) => return Ok(spare),
                Err(error) => {
                    tracing::warn!(hull = hull.home.id(), error = %chain(&error), "a spare hull was not fit for use and is removed");
                    self.host.destroy(&hull.home).await?;
                }
            }
        }
        let (hull, mut note) = self.host.make(order, duty).await?;
        note.memory_bytes = order.limits.memory_bytes;
        Ok(Spare { hull, note, progress: Progress::Empty })
    }

    fn order(&self, spec: &RunSpec) -> Order {
        Order {
            root: root_key(&spec.image, &spec.layers),
            rootfs: spec.rootfs.clone(),
            layers: spec.layers.clone(),
            reach: match spec.egress {
                Egress::None => Reach::Alone,
                Egress::Public | Egress::Allow(_) => Reach::Networked,
            },
            disk_bytes: spec.resources.disk_bytes,
            limits: Limits::for_guest(&spec.resources),
            build: spec.build.clone().filter(|build| build != self.host.builds.newest()),
        }
    }

    /// Waits until the agent inside answers.
    pub(crate) async fn greet(&self, hull: &Hull, generation: u64) -> Result<(), GvisorError> {
        let (stream, _thread) = in_place(|| stream::open(&hull.home))?;
        let answered = tokio::time::timeout(HELLO_LIMIT, Agent::connect(stream, generation)).await;
        let late = |_| GvisorError::Late { operation: "the agent's first answer", limit: HELLO_LIMIT };
        answered.map_err(late)??;
        Ok(())
    }
}

async fn claim(hull: &Hull, note: &Note, order: &Order) -> Result<(), GvisorError> {
    if !hull.is_alive() {
        return Err(hull.died());
    }
    in_place(|| hull.home.write(note))?;
    let limits = order.limits;
    hull.group(move |group| {
        group.thaw()?;
        group.set_limits(&limits)
    })
    .await
}
