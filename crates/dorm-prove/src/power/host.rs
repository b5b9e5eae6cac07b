//! Host resources that a power cut ends, besides the disk: processes, mounts, loop devices,
//! network, control groups.
//!
//! The kernel survives in a proof, so each is ended here before the disk comes back.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dorm_testing::held_by_kernel;

use super::PowerDisk;
use crate::host::Traces;

/// How long killed processes and their devices may take to disappear.
const GONE: Duration = Duration::from_secs(120);

/// Removes everything that the dead daemon of `traces` had made, then switches the disk on again.
pub(crate) fn lose_power(traces: &mut Traces, disk: &PowerDisk) -> Result<()> {
    let end = Instant::now() + GONE;
    loop {
        traces.clear_by_force();
        let mut held = held_by_kernel(disk.path());
        // Its own mount, and the device below that, stay until it is switched on.
        held.retain(|found| found.contains(&format!("{}/", disk.path().display())));
        if held.is_empty() && traces.processes_left().is_empty() {
            break;
        }
        if Instant::now() > end {
            bail!("after a power cut there is still: {held:?} {:?}", traces.processes_left());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    disk.switch_on()
}
