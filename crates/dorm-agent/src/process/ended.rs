//! Ended processes, which are kept with the rest of their output until many later ones have ended.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use dorm_agent_proto::ExitStatus;
use rustix::process::Pid;

use super::{Processes, Stage, Table};
use crate::lock::lock;

/// How many ended processes are kept, so that a reader can continue after its connection was cut.
const ENDED_KEPT: usize = 4096;
const ENDED_OUTPUT_KEPT: usize = 16 * 1024 * 1024;
/// How many bytes the arguments and variables of ended processes may have, beyond a few processes.
const ENDED_DESCRIBED: usize = 8 * 1024 * 1024;
const ENDED_FEW: usize = 256;
const DEATHS_PER_LOOK: u64 = 16;

/// The ended processes, oldest first.
#[derive(Default)]
pub(super) struct Ended {
    ids: VecDeque<u64>,
    deaths: u64,
}

impl Processes {
    /// Records that a child was reaped. Requires the lock on starts and deaths.
    pub(super) fn died(&self, pid: Pid, status: ExitStatus) {
        let Some(process) = lock(&self.table).alive.remove(&pid) else { return };
        lock(&process.life).stage = Stage::Buried;
        lock(&self.table).ended.ids.push_back(process.id);
        // A limit also ends the output that others hold open.
        if !process.waits_for_pipes.load(Ordering::Acquire) {
            self.limits.remove(process.id);
        }
        self.forget_old();
        self.pump.died(process, status);
    }

    /// Forgets the oldest of many ended processes, and the oldest output if much is kept.
    fn forget_old(&self) {
        let mut table = lock(&self.table);
        while table.ended.ids.len() > ENDED_KEPT {
            if let Some(forgotten) = table.forget_oldest() {
                self.limits.remove(forgotten);
            }
        }
        // Looking through very many each time would make every short process slower.
        table.ended.deaths += 1;
        if table.ended.ids.len() > ENDED_FEW && !table.ended.deaths.is_multiple_of(DEATHS_PER_LOOK) {
            return;
        }
        let (mut output, mut described, mut fit) = (0, 0, 0);
        for id in table.ended.ids.iter().rev() {
            let Some(process) = table.all.get(id) else { continue };
            let mut outputs = lock(&process.outputs);
            output += outputs.kept();
            if output > ENDED_OUTPUT_KEPT && !outputs.is_followed() {
                output -= outputs.kept();
                outputs.discard();
            }
            described += process.described_bytes();
            fit += usize::from(described <= ENDED_DESCRIBED);
        }
        while table.ended.ids.len() > fit.max(ENDED_FEW) {
            if let Some(forgotten) = table.forget_oldest() {
                self.limits.remove(forgotten);
            }
        }
    }
}

impl Table {
    /// Returns the process that is forgotten.
    fn forget_oldest(&mut self) -> Option<u64> {
        let oldest = self.ended.ids.pop_front()?;
        if let Some(process) = self.all.remove(&oldest) {
            let mut outputs = lock(&process.outputs);
            // Readers keep it until they have all its output.
            if !outputs.is_followed() {
                outputs.discard();
            }
        }
        Some(oldest)
    }
}
