//! The findings and counts of a proof, as data.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::steps::Step;

/// The counts and findings of a proof.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The seed of the order of everything.
    pub seed: u64,
    /// The number of whole passes.
    pub passes: u32,
    /// Whether each step of each operation was tried at least once.
    pub whole: bool,
    /// Its duration in seconds.
    pub seconds: u64,
    /// One row for each operation.
    pub rows: Vec<Row>,
    /// Everything that is not as promised; empty if all is well.
    pub findings: Vec<Finding>,
    /// The file with the daemons' output; only if there are findings.
    pub log: Option<std::path::PathBuf>,
}

/// The counts of one operation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Its name.
    pub operation: String,
    /// The number of its steps on this host.
    pub steps: usize,
    /// The number of its steps at which the daemon was killed, or the disk filled, at least once.
    pub tried: usize,
    /// The steps that were not tried.
    pub untried: Vec<String>,
    /// Steps that came once and then in none of the cycles made for them: they belong to something
    /// else that ran at the same time. Each came only once, or was tried in another operation.
    pub by_chance: Vec<String>,
    /// How often the operation was carried out.
    pub cycles: u64,
    /// How often the daemon was killed during it.
    pub kills: u64,
    /// How often the power was cut during it.
    pub power_cuts: u64,
    /// How often the disk was filled or a file damaged during it.
    pub disk_faults: u64,
    /// The number of sandboxes that were gone, or did not answer any more.
    pub sandboxes_lost: u64,
    /// How often memory or files were not as acknowledged.
    pub data_lost: u64,
    /// The number of things on the host that no record has, or that are missing there.
    pub left_overs: u64,
    /// The number of answers that were wrong otherwise.
    pub wrong_answers: u64,
}

/// Something that is not as promised.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The operation during which it was found.
    pub operation: String,
    /// The step of that operation, if one was chosen.
    pub step: Option<String>,
    /// The kind of finding.
    pub kind: Kind,
    /// The details, for people.
    pub what: String,
}

/// The kind of a [`Finding`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A sandbox is gone, or does not answer any more.
    SandboxLost,
    /// Memory or files are not as acknowledged.
    DataLost,
    /// The host and the records differ.
    LeftOver,
    /// An answer is not as promised.
    WrongAnswer,
}

/// How often a step came, and how often it was tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Times {
    pub(crate) seen: u32,
    pub(crate) tried: u32,
}

impl Row {
    /// Sets the counts of steps and of tried steps from `tried`.
    pub(crate) fn count(&mut self, tried: &BTreeMap<Step, Times>) {
        self.steps = tried.len();
        self.untried = tried.iter().filter(|(_, times)| times.tried == 0).map(|(step, _)| step.to_string()).collect();
        self.tried = self.steps - self.untried.len();
    }
}

impl Report {
    /// Whether everything was tried and nothing found.
    pub fn holds(&self) -> bool {
        self.whole && self.findings.is_empty()
    }

    /// The row of an operation, added if there is none.
    pub(crate) fn row(&mut self, operation: &str) -> &mut Row {
        let at = self.rows.iter().position(|row| row.operation == operation).unwrap_or_else(|| {
            self.rows.push(Row { operation: operation.to_owned(), ..Row::default() });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        let row = self.row(&finding.operation);
        match finding.kind {
            Kind::SandboxLost => row.sandboxes_lost += 1,
            Kind::DataLost => row.data_lost += 1,
            Kind::LeftOver => row.left_overs += 1,
            Kind::WrongAnswer => row.wrong_answers += 1,
        }
        self.findings.push(finding);
    }
}
