//! Steps, and what they leave set for those that follow.

use std::collections::BTreeMap;

use crate::BuildError;

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// A program with its arguments.
    Argv(Vec<String>),
}

impl Command {
    /// What is started.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Self::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
            Self::Argv(argv) => argv.clone(),
        }
    }
}

/// Files that go into the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Paths below the context; a directory stands for what is in it.
    pub from: Vec<String>,
    /// Where they go: an absolute path, or one below the working directory. With a slash at the end, or with several
    /// sources, a directory that they go into.
    pub to: String,
}

/// One step of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Runs a program, which must end with 0.
    Run(Command),
    /// Copies files.
    Copy(Copy),
    /// Sets a variable for all that follows, and in the image.
    Env(String, String),
    /// Sets the working directory, which is made if it is missing.
    Workdir(String),
    /// Sets the user that later steps run as: a name or id, and perhaps a group after a colon.
    User(String),
    /// What a sandbox of the image runs when it is told to begin with that.
    Entrypoint(Vec<String>),
    /// Its arguments, or the program itself.
    Cmd(Vec<String>),
}

/// A step, and where it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Its line in the Dockerfile, counted from 1; none when it came as an argument.
    pub line: Option<usize>,
    /// What it does.
    pub step: Step,
    /// Values of `ARG`s that programs of the step see as variables.
    pub arguments: BTreeMap<String, String>,
}

/// What is built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The image it begins with.
    pub from: String,
    /// What is done, in order.
    pub steps: Vec<Placed>,
}

/// What an image brings along beside its files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Working directory; none stands for `/`.
    pub workdir: Option<String>,
    /// User; none stands for root.
    pub user: Option<String>,
    /// Program.
    pub entrypoint: Option<Vec<String>>,
    /// Its arguments.
    pub cmd: Option<Vec<String>>,
}

/// What is set when a step begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings(pub Kept);

impl Settings {
    /// Goes on to what is set after `step`.
    ///
    /// # Errors
    /// A variable's name, a path or a user that cannot be one.
    pub fn apply(&mut self, step: &Step) -> Result<(), BuildError> {
        let refused = |what: String| Err(BuildError::Step { what });
        let kept = &mut self.0;
        match step {
            Step::Run(_) | Step::Copy(_) => {}
            Step::Env(name, value) => {
                if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                    return refused(format!("invalid variable name '{name}': write NAME=VALUE"));
                }
                kept.env.insert(name.clone(), value.clone());
            }
            Step::Workdir(path) => {
                if path.is_empty() || path.contains('\0') {
                    return refused("a working directory needs a path".to_owned());
                }
                self.0.workdir = Some(self.below(path));
            }
            Step::User(user) => {
                if user.is_empty() || user.contains(char::is_whitespace) {
                    return refused(format!("invalid user '{user}': write NAME, ID or ID:GROUP"));
                }
                kept.user = Some(user.clone());
            }
            Step::Entrypoint(argv) => {
                kept.entrypoint = Some(argv.clone());
                // Arguments of another program mean nothing to this one.
                kept.cmd = None;
            }
            Step::Cmd(argv) => kept.cmd = Some(argv.clone()),
        }
        Ok(())
    }

    /// `path`, seen from the working directory, without `.` and `..`.
    pub fn below(&self, path: &str) -> String {
        let base = if path.starts_with('/') { "" } else { self.0.workdir.as_deref().unwrap_or("") };
        let mut parts: Vec<&str> = Vec::new();
        for part in base.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Settings, Step};

    #[test]
    fn a_working_directory_is_seen_from_the_one_before() {
        let mut settings = Settings::default();
        for (step, at) in [("/srv/app/", "/srv/app"), ("src", "/srv/app/src"), ("../../x/./y", "/srv/x/y"), ("/", "/")]
        {
            settings.apply(&Step::Workdir(step.to_owned())).unwrap();
            assert_eq!(settings.0.workdir.as_deref(), Some(at));
        }
        assert_eq!(settings.below("../../../etc"), "/etc", "there is nothing above the root");
    }

    #[test]
    fn another_entrypoint_has_no_arguments_yet() {
        let mut settings = Settings::default();
        for step in [Step::Cmd(vec!["a".into()]), Step::Entrypoint(vec!["b".into()])] {
            settings.apply(&step).unwrap();
        }
        assert_eq!((settings.0.entrypoint, settings.0.cmd), (Some(vec!["b".to_owned()]), None));
    }
}
