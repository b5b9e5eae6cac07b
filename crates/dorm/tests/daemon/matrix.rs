//! The lifecycle matrix on real sandboxes.

use anyhow::{Result, ensure};
use dorm_testing::matrix::{BUDGET_MIB, Stage};
use dorm_testing::{Daemon, Prepare, processes_of};

use crate::place::Place;

const COUNTING: &str = r#"n=0; while read -r line; do n=$((n+1)); echo "$1 $n"; done"#;

pub(crate) struct Gvisor(Place);

impl Gvisor {
    fn new() -> Self {
        Self::prepared(|_| {})
    }

    /// A daemon whose process is prepared at every start.
    pub(crate) fn prepared(prepare: Prepare) -> Self {
        let budget = BUDGET_MIB.to_string();
        let options = ["--warm-containers", "0", "--memory-budget-mib", &budget, "--memory-reserve-mib", "0"];
        Self(Place::prepared(&options, prepare))
    }
}

impl Stage for Gvisor {
    fn daemon(&self) -> &Daemon {
        self.0.daemon()
    }

    fn counting(&self) -> Vec<String> {
        ["sh", "-c", COUNTING, "sh"].map(str::to_owned).to_vec()
    }

    fn crash(&self, _sandbox: &str) -> Result<()> {
        // Containers do not have the names of sandboxes, so there must be exactly one.
        let mut processes = processes_of(self.daemon().data());
        processes.retain(|(_, line)| line.starts_with("runsc-sandbox"));
        let [(pid, _)] = processes.as_slice() else { anyhow::bail!("not one process: {processes:#?}") };
        let killed = dorm_testing::signal(*pid, rustix::process::Signal::KILL);
        ensure!(killed.is_ok(), "{killed:?}");
        Ok(())
    }

    async fn close(self) {
        self.0.end(&["a run ended unexpectedly"]).await;
    }
}

dorm_testing::matrix_tests!(Gvisor::new());
