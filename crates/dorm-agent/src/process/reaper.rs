//! Reaps every child: those started here, and orphans adopted by the first process.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use dorm_agent_proto::ExitStatus;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus, waitid};

use super::Processes;
use crate::lock::{lock, wait};

/// Notified after every start: without any child there is nothing to wait for.
#[derive(Default)]
pub(super) struct Bell {
    births: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *lock(&self.births) += 1;
        self.rung.notify_all();
    }

    fn births(&self) -> u64 {
        *lock(&self.births)
    }

    fn wait_beyond(&self, seen: u64) {
        let mut births = lock(&self.births);
        while *births == seen {
            births = wait(&self.rung, births);
        }
    }
}

pub(super) fn start_thread(processes: &Arc<Processes>) -> io::Result<()> {
    let processes = Arc::clone(processes);
    thread::Builder::new().name("reaper".to_owned()).spawn(move || {
        loop {
            let births = processes.reaper.births();
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => bury_all(&processes),
                Err(Errno::CHILD) => processes.reaper.wait_beyond(births),
                Err(_) => {}
            }
        }
    })?;
    Ok(())
}

/// Reaps all dead children. Until here each of them still has its process ID. A start is complete
/// before its death can be seen.
fn bury_all(processes: &Processes) {
    let _alone = lock(&processes.births_and_deaths);
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if let Some(exit) = exit_status(status) {
            processes.died(pid, exit);
        }
    }
}

fn exit_status(status: WaitStatus) -> Option<ExitStatus> {
    status.exit_status().map(ExitStatus::Code).or_else(|| status.terminating_signal().map(ExitStatus::Signal))
}
