//! What must hold of every sandbox at any time. The simulator and the stores check with it.

use thiserror::Error;

use crate::background::BackgroundWork;
use crate::sandbox::{Sandbox, State};
use crate::spec::SpecError;
use crate::volume::{AttachmentError, check_attachments};

/// An invariant that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Broken {
    /// What was asked for could not have been.
    #[error("its spec cannot be: {0}")]
    Spec(#[from] SpecError),
    /// Runs are counted from 1.
    #[error("generation {generation}, run {run}: a run is 1 to the generation")]
    Run {
        /// The generation.
        generation: u64,
        /// The engine's run.
        run: u64,
    },
    /// An image claims to be of a generation that has not been.
    #[error("its image is of generation {image}, but it has only reached {generation}")]
    Image {
        /// The image's generation.
        image: u64,
        /// The sandbox's.
        generation: u64,
    },
    /// What is known of a run is kept although there is none.
    #[error("it is {0}, and it keeps what was known of its run")]
    NoRun(&'static str),
    /// A capture is kept twice.
    #[error("it keeps an image twice")]
    Twice,
    /// Its background operation is none of its state.
    #[error("it is {0}, and its background operation takes a snapshot of a sleep image")]
    Background(&'static str),
    /// What it is to have attached cannot be together.
    #[error("what is being attached cannot be: {0}")]
    Attaching(#[from] AttachmentError),
    /// It was suspended although it may not be.
    #[error("it is {0} although it is not suspendable")]
    Suspended(&'static str),
}

/// Checks every invariant.
///
/// # Errors
/// The first that does not hold.
pub fn check(sandbox: &Sandbox) -> Result<(), Broken> {
    sandbox.spec.check()?;
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
    if !sandbox.state.has_run() && (sandbox.unreachable.is_some() || sandbox.suspend_failures.is_some()) {
        return Err(Broken::NoRun(sandbox.state.name().as_str()));
    }
    let mut captures: Vec<_> = sandbox.captures().collect();
    captures.sort();
    if captures.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Broken::Twice);
    }
    if let Some(BackgroundWork::Attach { after }) = sandbox.state.background().map(|background| &background.work) {
        check_attachments(after)?;
    }
    match &sandbox.state {
        State::Running { background: Some(background), .. }
            if matches!(background.work, BackgroundWork::Snapshot(_)) =>
        {
            Err(Broken::Background(sandbox.state.name().as_str()))
        }
        // One that is taken back to a snapshot is saved all the same, and when that fails it has to wake from there.
        State::Suspending { rewind: None, .. } if !sandbox.spec.suspendable => {
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
