//! Invariants of every sandbox. The simulator and the stores check them.

use thiserror::Error;

use crate::background::BackgroundWork;
use crate::egress::Egress;
use crate::sandbox::Sandbox;
use crate::spec_error::SpecError;
use crate::state::State;
use crate::volume::{AttachmentError, check_attachments};

/// A violated invariant.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Broken {
    /// The requested properties are invalid.
    #[error("invalid spec: {0}")]
    Spec(#[from] SpecError),
    /// The run number is not between 1 and the generation.
    #[error("run {run} at generation {generation}: the run must be between 1 and the generation")]
    Run {
        /// The generation.
        generation: u64,
        /// The number of the engine's run.
        run: u64,
    },
    /// An image has a generation that the sandbox has not reached.
    #[error("its image has generation {image}, but the sandbox has only reached generation {generation}")]
    Image {
        /// The image's generation.
        image: u64,
        /// The generation of the sandbox.
        generation: u64,
    },
    /// Facts about a run are recorded although the state has no run.
    #[error("it is {0}, but still has facts about a run")]
    NoRun(&'static str),
    /// One saved state is recorded twice.
    #[error("it refers to one saved state twice")]
    Twice,
    /// The background operation is not possible in the state.
    #[error("it is {0}, but its background operation is for another state")]
    Background(&'static str),
    /// The run that a rewind has left is not older than its own.
    #[error("run {run}, which a rewind has left, is not older than its own run {own}")]
    Held {
        /// The number of the run that was left.
        run: u64,
        /// The number of its own run.
        own: u64,
    },
    /// The attachments to be made conflict.
    #[error("the volumes being attached conflict: {0}")]
    Attaching(#[from] AttachmentError),
    /// A header rule would use a secret of another project.
    #[error("a header rule of its egress uses a secret of another project")]
    Project,
    /// A background operation adds or removes its network device.
    #[error("its egress is changed from or to none, but its network device cannot be added or removed")]
    Device,
    /// An image of files only is not the layer that it is based on.
    #[error("its files of generation {0} are not the layer that it is based on")]
    Layer(u64),
    /// It is suspended although it is not suspendable.
    #[error("it is {0} although it is not suspendable")]
    Suspended(&'static str),
}

fn has_own_secrets(sandbox: &Sandbox, egress: &Egress) -> Result<(), Broken> {
    match egress.headers().iter().all(|header| header.project == sandbox.project) {
        true => Ok(()),
        false => Err(Broken::Project),
    }
}

/// Checks every invariant.
///
/// # Errors
///
/// The first violated invariant.
pub fn check(sandbox: &Sandbox) -> Result<(), Broken> {
    sandbox.spec.check()?;
    has_own_secrets(sandbox, &sandbox.spec.egress)?;
    if sandbox.run == 0 || sandbox.run > sandbox.generation {
        return Err(Broken::Run { generation: sandbox.generation, run: sandbox.run });
    }
    if let Some(image) = sandbox.state.image()
        && image.generation > sandbox.generation
    {
        return Err(Broken::Image { image: image.generation, generation: sandbox.generation });
    }
    if let Some(image) = sandbox.older.iter().find(|image| image.generation > sandbox.generation) {
        return Err(Broken::Image { image: image.generation, generation: sandbox.generation });
    }
    let mut files = sandbox.state.image().into_iter().chain(&sandbox.older).filter(|image| image.files.is_some());
    if let Some(image) = files.find(|image| sandbox.spec.layer.as_ref() != Some(&image.saved_state)) {
        return Err(Broken::Layer(image.generation));
    }
    if !sandbox.state.has_run() && (sandbox.unreachable.is_some() || sandbox.suspend_failures.is_some()) {
        return Err(Broken::NoRun(sandbox.state.name().as_str()));
    }
    let mut saved_states: Vec<_> = sandbox.saved_states().collect();
    saved_states.sort();
    if saved_states.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Broken::Twice);
    }
    match sandbox.state.background().map(|background| &background.work) {
        Some(BackgroundWork::Attach { after }) => check_attachments(after)?,
        Some(BackgroundWork::Egress { after }) => {
            after.check().map_err(SpecError::from)?;
            has_own_secrets(sandbox, after)?;
            if after.has_device() != sandbox.spec.egress.has_device() {
                return Err(Broken::Device);
            }
        }
        Some(BackgroundWork::Resize { after }) => after.check()?,
        Some(BackgroundWork::SaveHeld(held)) if held.run >= sandbox.run || held.generation >= sandbox.generation => {
            return Err(Broken::Held { run: held.run, own: sandbox.run });
        }
        Some(BackgroundWork::PrepareRewind(_) | BackgroundWork::Snapshot(_) | BackgroundWork::SaveHeld(_)) | None => {}
    }
    match &sandbox.state {
        State::Running { background: Some(background), .. }
            if matches!(background.work, BackgroundWork::Snapshot(_)) =>
        {
            Err(Broken::Background(sandbox.state.name().as_str()))
        }
        State::Suspended { background: Some(background), .. }
            if matches!(background.work, BackgroundWork::SaveHeld(_)) =>
        {
            Err(Broken::Background(sandbox.state.name().as_str()))
        }
        // A sandbox being rewound is saved even so, and if the rewind fails it has to wake from
        // that image.
        State::Suspending { rewind: None, files: None, .. } if !sandbox.spec.suspendable => {
            Err(Broken::Suspended(sandbox.state.name().as_str()))
        }
        State::Pending { .. }
        | State::Running { .. }
        | State::Snapshotting { .. }
        | State::Suspending { .. }
        | State::Suspended { .. }
        | State::Resuming { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => Ok(()),
    }
}
