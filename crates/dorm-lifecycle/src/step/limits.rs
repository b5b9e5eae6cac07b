//! Time limits of operations: a fixed time per kind, plus the time that the slowest acceptable disk
//! needs for the bytes to write or read.

use std::time::Duration;

use crate::resources::Resources;
use crate::rewind::Rewind;
use crate::sandbox::Sandbox;
use crate::saved::SleepImage;
use crate::state::FirstProgram;

/// The time limit of each kind of operation, independent of its size, and the throughput assumed
/// for the bytes it writes or reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Starting a first run. Default 60 s.
    pub start: Duration,
    /// The image's program, until it is ready. Default 300 s.
    pub ready: Duration,
    /// Suspending. Default 300 s.
    pub suspend: Duration,
    /// Resuming. Default 300 s.
    pub resume: Duration,
    /// Taking a snapshot. Default 300 s.
    pub snapshot: Duration,
    /// Attaching or detaching a volume. Default 60 s.
    pub attach: Duration,
    /// Changing the egress policy. Default 60 s.
    pub egress: Duration,
    /// Terminating. A late termination is reported and retried. Default 60 s.
    pub terminate: Duration,
    /// The lowest acceptable throughput in bytes per second. The limit of each operation grows with
    /// the bytes it writes or reads. Default 20 MiB.
    pub bytes_per_second: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self {
            start: minutes(1),
            ready: minutes(5),
            suspend: minutes(5),
            resume: minutes(5),
            snapshot: minutes(5),
            attach: minutes(1),
            egress: minutes(1),
            terminate: minutes(1),
            bytes_per_second: 20 << 20,
        }
    }
}

impl Limits {
    /// Returns the time that writing or reading `bytes` may take, beyond the rest of the operation.
    pub fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_secs(bytes / self.bytes_per_second.max(1))
    }

    /// Returns the limit for starting a first run from a memory snapshot of `bytes`, which is
    /// 0 for a run that boots.
    pub fn start_of(&self, bytes: u64) -> Duration {
        self.start + self.time_for(bytes)
    }

    /// Returns the additional limit for `program`.
    pub fn program(&self, program: FirstProgram) -> Duration {
        match program {
            FirstProgram::None => Duration::ZERO,
            FirstProgram::OfImage => self.ready,
        }
    }

    /// Returns the limit for suspending `sandbox`.
    pub fn suspend_of(&self, sandbox: &Sandbox) -> Duration {
        self.suspend_with(&sandbox.spec.resources)
    }

    /// Returns the limit for saving a run that has these resource limits.
    pub fn suspend_with(&self, resources: &Resources) -> Duration {
        self.suspend + self.time_for(content(resources))
    }

    /// Returns the limit for a snapshot of `sandbox`.
    pub fn snapshot_of(&self, sandbox: &Sandbox) -> Duration {
        self.snapshot + self.time_for(content(&sandbox.spec.resources))
    }

    /// Returns the limit for resuming `sandbox`. It covers an attempt with each image that is kept.
    pub fn resume_of(&self, sandbox: &Sandbox) -> Duration {
        let kept = sandbox.state.image().into_iter().chain(&sandbox.older);
        self.resume + self.time_for(sum(kept))
    }

    /// Returns the limit for copying `images`, or for reading the files in them.
    pub fn copy_of<'a>(&self, images: impl Iterator<Item = &'a SleepImage>) -> Duration {
        self.snapshot + self.time_for(sum(images))
    }

    /// Returns the limit for carrying out `rewind` on `sandbox`.
    pub fn rewind_of(&self, sandbox: &Sandbox, rewind: &Rewind) -> Duration {
        let target = sum(rewind.target.iter());
        // If the rewind fails, the sandbox has to return to its present state.
        self.resume_of(sandbox) + self.time_for(target)
    }
}

/// Returns the largest possible size of a memory image of a run with these limits: its memory, and
/// its written files.
fn content(resources: &Resources) -> u64 {
    resources.memory_bytes.saturating_add(resources.disk_bytes)
}

fn sum<'a>(images: impl Iterator<Item = &'a SleepImage>) -> u64 {
    images.fold(0, |sum, image| sum.saturating_add(image.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;
    use crate::step::{Command, Context, Input, create, step};
    use crate::table::{context, image};
    use crate::{Keep, OnTimeout, Origin, ProjectId, Sandbox, SandboxId, SandboxSpec, SnapshotId, SnapshotKind};

    const GIB: u64 = 1 << 30;

    fn sandbox(state: State) -> Sandbox {
        let spec = SandboxSpec::new("0".repeat(64).parse().expect("digest"), Some("web".parse().expect("name")));
        assert_eq!(spec.on_timeout, OnTimeout::Suspend);
        let made = create(SandboxId::from_random([1; 20]), ProjectId::local(), spec, Origin::Image, &context());
        Sandbox { state, ..made.expect("create").next }
    }

    /// Returns the time limit of the operation that `command` begins.
    fn allowed(sandbox: &Sandbox, command: Command) -> Duration {
        let made = step(sandbox, &Input::Command(command), &context()).expect("a step");
        match made.next.state {
            State::Suspending { deadline, .. }
            | State::Snapshotting { deadline, .. }
            | State::Resuming { deadline, .. } => deadline.since(context().now),
            other => other.background().expect("an operation").deadline.since(context().now),
        }
    }

    #[test]
    fn a_large_image_has_the_time_that_reading_it_takes() {
        let large = crate::SleepImage { bytes: 64 * GIB, ..image() };
        let limit =
            allowed(&sandbox(State::Suspended { image: large, background: None }), Command::Resume { total: None });
        assert_eq!(limit.as_secs(), 300 + 64 * 1024 / 20);
        let small =
            allowed(&sandbox(State::Suspended { image: image(), background: None }), Command::Resume { total: None });
        assert_eq!(small.as_secs(), 300);
    }

    #[test]
    fn a_large_guest_has_the_time_that_writing_it_takes() {
        let mut large = sandbox(State::Running { since: context().now, image: None, background: None });
        large.spec.resources.memory_bytes = 64 * GIB;
        large.spec.resources.disk_bytes = 0;
        let expected = 300 + 64 * 1024 / 20;
        assert_eq!(allowed(&large, Command::Suspend(Keep::Memory)).as_secs(), expected);
        assert_eq!(
            allowed(&large, Command::Snapshot(SnapshotId::from_random([4; 20]), SnapshotKind::Memory)).as_secs(),
            expected
        );
    }

    #[test]
    fn a_start_from_a_large_snapshot_has_the_time_that_reading_it_takes() {
        let spec = SandboxSpec::new("0".repeat(64).parse().expect("digest"), None);
        let context = Context { bytes: 64 * GIB, ..context() };
        let made = create(SandboxId::from_random([1; 20]), ProjectId::local(), spec, Origin::Image, &context);
        let State::Pending { deadline, .. } = made.expect("create").next.state else { panic!("not pending") };
        assert_eq!(deadline.since(context.now).as_secs(), 60 + 64 * 1024 / 20);
    }

    #[test]
    fn a_copy_of_a_large_image_has_the_time_that_it_takes() {
        let large = crate::SleepImage { bytes: 64 * GIB, ..image() };
        let wanted = Rewind { target: Some(large.clone()), ..crate::table::rewind() };
        let running = sandbox(State::Running { since: context().now, image: None, background: None });
        let expected = 300 + 64 * 1024 / 20;
        assert_eq!(allowed(&running, Command::Rewind(Box::new(wanted))).as_secs(), expected);
        let asleep = sandbox(State::Suspended { image: large, background: None });
        assert_eq!(
            allowed(&asleep, Command::Snapshot(SnapshotId::from_random([4; 20]), SnapshotKind::Memory)).as_secs(),
            expected
        );
    }

    #[test]
    fn a_rewind_has_the_time_to_come_back_too() {
        let wanted = |bytes| Rewind { target: Some(crate::SleepImage { bytes, ..image() }), ..crate::table::rewind() };
        let own = crate::SleepImage { bytes: 32 * GIB, ..image() };
        let asleep = sandbox(State::Suspended { image: own, background: None });
        let limit = Limits::default().rewind_of(&asleep, &wanted(64 * GIB));
        assert_eq!(limit.as_secs(), 300 + 64 * 1024 / 20 + 32 * 1024 / 20);
    }
}
