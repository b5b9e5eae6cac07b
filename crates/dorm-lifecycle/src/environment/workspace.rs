//! The definition of what a sandbox of an environment has.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::{Digest, Egress, Resources, SnapshotId};

/// The largest number of commands of a setup.
const COMMANDS_MAX: usize = 200;
/// The longest command, in bytes.
const COMMAND_BYTES_MAX: usize = 64 << 10;
/// The range of the time limit of a step.
const STEP_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));

/// The contents of a sandbox of an environment when it is ready. Secrets are not part of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Workspace {
    /// The files that it starts from.
    pub base: Base,
    /// Its resource limits.
    pub resources: Resources,
    /// Where it may connect to. Default: as a snapshot that is its base says, else the public
    /// internet.
    pub egress: Option<Egress>,
    /// Environment variables of every process in it.
    pub variables: BTreeMap<String, String>,
    /// The directory of the code, in which the commands run.
    pub directory: String,
    /// The user who runs the commands: a name or a number. Default: that of the image.
    pub user: Option<String>,
    /// The code.
    pub code: Option<Code>,
    /// The setup, in order.
    pub setup: Vec<SetupStep>,
    /// A line for `/bin/sh` that is started at each boot from files and left running.
    pub start: Option<String>,
    /// A line for `/bin/sh` that exits with 0 once everything is ready.
    pub ready: Option<String>,
    /// The time limit of each step.
    pub step_limit: Duration,
}

/// The files that a workspace starts from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Base {
    /// An image.
    Image(Digest),
    /// A snapshot.
    Snapshot(SnapshotId),
}

/// The code of a workspace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// A git repository.
    Git {
        /// Its URL.
        url: String,
        /// The branch, tag or commit; by default the branch that the server names.
        reference: Option<String>,
        /// How many commits are fetched; none for all.
        depth: Option<u32>,
    },
    /// An uploaded build context.
    Upload(Digest),
}

/// A step of a setup. Each command is a line for `/bin/sh`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SetupStep {
    /// One command.
    Serial(String),
    /// Several commands at the same time.
    Parallel(Vec<String>),
}

impl SetupStep {
    /// Returns its commands.
    pub fn commands(&self) -> &[String] {
        match self {
            Self::Serial(command) => std::slice::from_ref(command),
            Self::Parallel(commands) => commands,
        }
    }
}

/// Why a workspace is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The directory is not absolute, or not in a plain form.
    #[error("the directory '{0}' of an environment must be an absolute path without '.', '..' and '//'")]
    Directory(String),
    /// A command is empty or too long, or has NUL.
    #[error("{what} of an environment {problem}")]
    Command {
        /// The command's place.
        what: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// The setup has too many commands, or a group without one.
    #[error("the setup of an environment {0}")]
    Setup(&'static str),
    /// The URL of a repository cannot be used.
    #[error("'{url}' is not a repository that can be cloned: {problem}")]
    Url {
        /// The URL, without credentials.
        url: String,
        /// The problem.
        problem: &'static str,
    },
    /// The name of a branch, tag or commit cannot be used.
    #[error("'{0}' is not a branch, tag or commit")]
    Reference(String),
    /// The depth is zero.
    #[error("the depth of a clone is 0: omit it for the last commit, or set `full_history`")]
    Depth,
    /// A time limit is out of range.
    #[error("the time limit of a step must be from 1 second to 24 hours")]
    StepLimit,
}

impl Workspace {
    /// Rejects a workspace that cannot be made, whatever its base is.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError`], with the field.
    pub fn check(&self) -> Result<(), WorkspaceError> {
        let parts: Vec<&str> = self.directory.split('/').collect();
        let is_plain = parts.iter().skip(1).all(|part| !matches!(*part, "" | "." | ".."));
        if parts.first() != Some(&"") || parts.len() < 2 || !is_plain || self.directory.contains('\0') {
            return Err(WorkspaceError::Directory(self.directory.clone()));
        }
        if !(STEP_LIMITS.0..=STEP_LIMITS.1).contains(&self.step_limit) {
            return Err(WorkspaceError::StepLimit);
        }
        let commands: usize = self.setup.iter().map(|step| step.commands().len()).sum();
        if commands > COMMANDS_MAX {
            return Err(WorkspaceError::Setup("has more than 200 commands"));
        }
        for step in &self.setup {
            if step.commands().is_empty() {
                return Err(WorkspaceError::Setup("has a parallel group without a command"));
            }
            step.commands().iter().try_for_each(|command| check_command("a setup command", command))?;
        }
        self.start.iter().try_for_each(|command| check_command("the start command", command))?;
        self.ready.iter().try_for_each(|command| check_command("the ready command", command))?;
        self.code.as_ref().map_or(Ok(()), Code::check)
    }

    /// Returns the words for the parts in which two workspaces differ.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self { base, resources, egress, variables, directory, user, code, setup, start, ready, step_limit: _ } =
            self;
        let differ = [
            ("base", *base != other.base),
            ("resources", *resources != other.resources),
            ("egress", *egress != other.egress),
            ("env", *variables != other.variables),
            ("directory", *directory != other.directory),
            ("user", *user != other.user),
            ("source", *code != other.code),
            ("setup", *setup != other.setup),
            ("start_command", *start != other.start),
            ("ready_command", *ready != other.ready),
        ];
        differ.into_iter().filter(|(_, is_different)| *is_different).map(|(word, _)| word).collect()
    }
}

fn check_command(what: &'static str, command: &str) -> Result<(), WorkspaceError> {
    let problem = match command {
        command if command.trim().is_empty() => "is empty",
        command if command.len() > COMMAND_BYTES_MAX => "is longer than 64 KiB",
        command if command.contains('\0') => "has a NUL",
        _ => return Ok(()),
    };
    Err(WorkspaceError::Command { what, problem })
}

impl Code {
    fn check(&self) -> Result<(), WorkspaceError> {
        let Self::Git { url, reference, depth } = self else { return Ok(()) };
        let refuse = |problem| Err(WorkspaceError::Url { url: without_credentials(url), problem });
        let Some((scheme, rest)) = url.split_once("://") else { return refuse("give its URL") };
        if !["https", "http", "ssh", "git"].contains(&scheme) {
            return refuse("its scheme must be https, http, ssh or git");
        }
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        match host {
            "" => return refuse("it names no host"),
            // They would be part of the record, and of what a sandbox is found by.
            host if host.contains('@') && scheme != "ssh" => {
                return refuse("give credentials as a token, not in the URL");
            }
            _ => {}
        }
        if url.starts_with('-') || url.chars().any(|char| char.is_control() || char == ' ') {
            return refuse("it has characters that no URL has");
        }
        if *depth == Some(0) {
            return Err(WorkspaceError::Depth);
        }
        match reference {
            Some(reference) if !is_reference(reference) => Err(WorkspaceError::Reference(reference.clone())),
            Some(_) | None => Ok(()),
        }
    }
}

/// Whether git could have a branch, tag or commit of this name.
fn is_reference(text: &str) -> bool {
    let is_legal = |char: char| !char.is_control() && !" ~^:?*[\\".contains(char);
    (1..=255).contains(&text.len())
        && text.chars().all(is_legal)
        && !text.starts_with(['-', '/', '.'])
        && !text.ends_with(['/', '.'])
        && !text.contains("..")
        && !text.contains("@{")
}

fn without_credentials(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => match rest.split_once('@') {
            Some((_, host)) => format!("{scheme}://{host}"),
            None => url.to_owned(),
        },
        None => url.rsplit('@').next().unwrap_or_default().to_owned(),
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(digest) => write!(f, "image {digest}"),
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(code: Option<Code>) -> Workspace {
        Workspace {
            base: Base::Image("ab".repeat(32).parse().unwrap()),
            resources: Resources::default(),
            egress: None,
            variables: BTreeMap::new(),
            directory: "/workspace".to_owned(),
            user: None,
            code,
            setup: vec![SetupStep::Serial("make".to_owned())],
            start: None,
            ready: None,
            step_limit: Duration::from_secs(60),
        }
    }

    fn git(url: &str, reference: Option<&str>) -> Option<Code> {
        Some(Code::Git { url: url.to_owned(), reference: reference.map(str::to_owned), depth: Some(1) })
    }

    #[test]
    fn repositories_are_named_by_plain_urls() {
        for (url, fits) in [
            ("https://example.com/owner/app.git", true),
            ("http://[::1]:8080/app", true),
            ("ssh://git@example.com/app", true),
            ("https://user:secret@example.com/app", false),
            ("example.com/app", false),
            ("file:///etc", false),
            ("ext::sh -c true", false),
            ("https:///app", false),
            ("https://example.com/a b", false),
        ] {
            let checked = workspace(git(url, None)).check();
            assert_eq!(checked.is_ok(), fits, "{url}: {checked:?}");
            if let Err(error) = checked {
                assert!(!error.to_string().contains("secret"), "{error}");
            }
        }
    }

    #[test]
    fn references_are_those_that_git_could_have() {
        for (reference, fits) in [
            ("main", true),
            ("feature/one", true),
            ("v1.2.3", true),
            ("--upload-pack=x", false),
            ("a..b", false),
            ("a b", false),
            ("", false),
        ] {
            let checked = workspace(git("https://example.com/app", Some(reference))).check();
            assert_eq!(checked.is_ok(), fits, "{reference}: {checked:?}");
        }
    }

    #[test]
    fn a_workspace_that_contradicts_itself_is_refused() {
        let with = |change: fn(&mut Workspace)| {
            let mut workspace = workspace(None);
            change(&mut workspace);
            workspace.check()
        };
        assert_eq!(with(|_| ()), Ok(()));
        for directory in ["", "/", "code", "/a/../b", "/a//b", "/a/"] {
            let checked = Workspace { directory: directory.to_owned(), ..workspace(None) }.check();
            assert_eq!(checked, Err(WorkspaceError::Directory(directory.to_owned())));
        }
        assert!(with(|one| one.setup = vec![SetupStep::Parallel(Vec::new())]).is_err());
        assert!(with(|one| one.setup = vec![SetupStep::Serial(" ".to_owned())]).is_err());
        assert!(with(|one| one.setup = vec![SetupStep::Serial("x".to_owned()); 201]).is_err());
        assert!(with(|one| one.ready = Some("a\0".to_owned())).is_err());
        assert!(with(|one| one.step_limit = Duration::ZERO).is_err());
    }

    #[test]
    fn differences_name_the_fields_of_a_request() {
        let one = workspace(None);
        assert!(one.differences(&one).is_empty());
        let other = Workspace { code: git("https://example.com/app", None), user: Some("1".to_owned()), ..one.clone() };
        assert_eq!(one.differences(&other), ["user", "source"]);
        // Patience is not a property of what is made.
        let patient = Workspace { step_limit: Duration::from_secs(7200), ..one.clone() };
        assert!(one.differences(&patient).is_empty());
    }
}
