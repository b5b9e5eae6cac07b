//! What a proof has found, as data.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::steps::Step;

/// What a proof did and found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// From which the order of everything was made.
    pub seed: u64,
    /// How many whole passes there were.
    pub passes: u32,
    /// Whether each step of each operation was tried at least once.
    pub whole: bool,
    /// Seconds it took.
    pub seconds: u64,
    /// One row for each operation.
    pub rows: Vec<Row>,
    /// Whatever is not as promised. Nothing, it is hoped.
    pub findings: Vec<Finding>,
    /// The file in which the daemons' words are kept; only when there are findings.
    pub log: Option<std::path::PathBuf>,
}

/// What was done with one operation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The operation.
    pub operation: String,
    /// How many steps it has here.
    pub steps: usize,
    /// At how many of them the daemon was killed, or the disk filled, at least once.
    pub tried: usize,
    /// The others.
    pub untried: Vec<String>,
    /// Steps that came some time and then in none of the cycles made for them: of something that went on at the same time.
    /// Each came only once, or was tried in another operation.
    pub by_chance: Vec<String>,
    /// How often it was carried out.
    pub cycles: u64,
    /// How often the daemon was killed in it.
    pub kills: u64,
    /// How often the power was cut in it.
    pub power_cuts: u64,
    /// How often the disk was filled or a file damaged in it.
    pub disk_faults: u64,
    /// Sandboxes that were gone, or did not answer any more.
    pub sandboxes_lost: u64,
    /// Times at which memory or files were not what had been acknowledged.
    pub data_lost: u64,
    /// Things on the host that no record knows, or that are missing there.
    pub left_overs: u64,
    /// Answers that were wrong otherwise.
    pub wrong_answers: u64,
}

/// Something that is not as promised.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// In which operation.
    pub operation: String,
    /// At which of its steps.
    pub step: Option<String>,
    /// What kind of thing.
    pub kind: Kind,
    /// What exactly.
    pub what: String,
}

/// The kind of a [`Finding`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A sandbox is gone, or does not answer any more.
    SandboxLost,
    /// Memory or files are not what was acknowledged.
    DataLost,
    /// The host and the records differ.
    LeftOver,
    /// An answer is not as promised.
    WrongAnswer,
}

/// How often a step came, and how often something was done there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Times {
    pub(crate) seen: u32,
    pub(crate) tried: u32,
}

impl Row {
    /// Counts its steps, and those that were tried.
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

    /// The row of an operation, made when it is not there.
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
