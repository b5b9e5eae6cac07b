//! The steps of a setup.

use dorm_lifecycle::environment::{Code, Workspace};
use dorm_store::{SetupState, SetupStepRecord};

/// A step of a setup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Planned {
    /// The repository is cloned.
    Clone,
    /// The uploaded files are copied.
    Upload,
    /// A command runs to its end.
    Command(String),
    /// The start command is started.
    Start(String),
    /// The ready command is repeated until it succeeds.
    Ready(String),
}

impl Planned {
    fn title(&self, workspace: &Workspace) -> String {
        let text = match self {
            Self::Clone => match &workspace.code {
                Some(Code::Git { url, reference, .. }) => {
                    let reference = reference.as_ref().map_or_else(String::new, |reference| format!(" {reference}"));
                    format!("clone {url}{reference}")
                }
                Some(Code::Upload(_)) | None => "clone".to_owned(),
            },
            Self::Upload => "copy the uploaded files".to_owned(),
            Self::Command(command) => command.clone(),
            Self::Start(command) => format!("start: {command}"),
            Self::Ready(command) => format!("ready: {command}"),
        };
        one_line(&text)
    }
}

/// Returns the steps of a workspace, in groups that run at the same time.
pub(super) fn groups(workspace: &Workspace) -> Vec<Vec<Planned>> {
    let code = workspace.code.iter().map(|code| match code {
        Code::Git { .. } => vec![Planned::Clone],
        Code::Upload(_) => vec![Planned::Upload],
    });
    let setup = workspace.setup.iter().map(|step| step.commands().iter().cloned().map(Planned::Command).collect());
    code.chain(setup).chain(boot_groups(workspace)).collect()
}

/// Returns the steps of each boot from files.
pub(super) fn boot_groups(workspace: &Workspace) -> Vec<Vec<Planned>> {
    let start = workspace.start.iter().map(|command| vec![Planned::Start(command.clone())]);
    let ready = workspace.ready.iter().map(|command| vec![Planned::Ready(command.clone())]);
    start.chain(ready).collect()
}

/// Returns the records of steps that have not begun.
pub(super) fn records(workspace: &Workspace, groups: &[Vec<Planned>]) -> Vec<SetupStepRecord> {
    let record = |step: &Planned| SetupStepRecord {
        title: step.title(workspace),
        state: SetupState::Waiting,
        exit_code: None,
        began: None,
        ended: None,
    };
    groups.iter().flatten().map(record).collect()
}

/// Returns a command as one line of limited length.
fn one_line(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
