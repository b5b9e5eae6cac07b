//! Build steps, and their effect on later steps.

use std::collections::BTreeMap;

use crate::BuildError;

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// A line for a login shell: `bash`, or `sh` in an image without it.
    Login(String),
    /// A program with its arguments.
    Argv(Vec<String>),
}

/// Replaces itself by the login shell that runs the line in `$0`.
const LOGIN: &str = r#"command -v bash >/dev/null 2>&1 && exec bash -l -c "$0"; exec sh -l -c "$0""#;

impl Command {
    /// Returns the program and its arguments.
    pub fn argv(&self) -> Vec<String> {
        match self {
            Self::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
            Self::Login(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), LOGIN.to_owned(), line.clone()],
            Self::Argv(argv) => argv.clone(),
        }
    }
}

/// Files to copy into the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Paths below the context; a directory means its content.
    pub from: Vec<String>,
    /// The destination: an absolute path, or one below the working directory. With a trailing
    /// slash, or with several sources, it is a directory.
    pub to: String,
    /// The owner of what is created: a name or ID, optionally followed by a colon and a group. Root
    /// without.
    pub owner: Option<String>,
    /// The permission bits of files and directories. Without, those in the context.
    pub mode: Option<u32>,
}

impl Copy {
    /// Returns the copy of these paths, with the owner root and the permissions in the context.
    pub fn new(from: Vec<String>, to: String) -> Self {
        Self { from, to, owner: None, mode: None }
    }
}

/// Reads the permission bits of files, in octal.
///
/// # Errors
/// When the text is not an octal number up to 7777.
pub fn octal_mode(text: &str) -> Result<u32, BuildError> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777 && !text.starts_with('+'));
    mode.ok_or_else(|| BuildError::Step { what: format!("invalid mode '{text}': write it in octal, such as 0644") })
}

fn check_user(user: &str) -> Result<(), BuildError> {
    match user.is_empty() || user.contains(char::is_whitespace) {
        true => Err(BuildError::Step { what: format!("invalid user '{user}': write NAME, ID or ID:GROUP") }),
        false => Ok(()),
    }
}

/// One step of a build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Runs a program, which must exit with 0.
    Run(Command),
    /// Copies files.
    Copy(Copy),
    /// Sets a variable for all later steps, and in the image.
    Env(String, String),
    /// Sets the working directory, which is created if it is missing.
    Workdir(String),
    /// Sets the user of later steps: a name or ID, optionally followed by a colon and a group.
    User(String),
    /// The program that a sandbox of the image runs if it is started with the image's command.
    Entrypoint(Vec<String>),
    /// The arguments of the entrypoint, or the program itself.
    Cmd(Vec<String>),
}

/// A step, and where it was specified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Its line in the Dockerfile, starting at 1; `None` if it was passed as an argument.
    pub line: Option<usize>,
    /// The step.
    pub step: Step,
    /// Values of `ARG`s that the programs of the step see as variables.
    pub arguments: BTreeMap<String, String>,
    /// The user of its program, if that is another than the one of the steps around it.
    pub user: Option<String>,
}

/// A complete build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The base image.
    pub from: String,
    /// The steps, in order.
    pub steps: Vec<Placed>,
}

/// The settings of an image, beside its files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Environment variables.
    pub env: BTreeMap<String, String>,
    /// Working directory; `None` means `/`.
    pub workdir: Option<String>,
    /// The owner of the working directory, if a step has to create it; `None` means root.
    pub workdir_owner: Option<String>,
    /// User; `None` means root.
    pub user: Option<String>,
    /// Entrypoint.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments of the entrypoint.
    pub cmd: Option<Vec<String>>,
}

/// The settings at the beginning of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings(pub Kept);

impl Settings {
    /// Applies `step` to the settings.
    ///
    /// # Errors
    /// When the name of a variable, a path or a user is invalid.
    pub fn apply(&mut self, step: &Step) -> Result<(), BuildError> {
        let refused = |what: String| Err(BuildError::Step { what });
        let kept = &mut self.0;
        match step {
            Step::Run(_) => {}
            Step::Copy(copy) => copy.owner.as_deref().map_or(Ok(()), check_user)?,
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
                let path = self.below(path);
                (self.0.workdir, self.0.workdir_owner) = (Some(path), self.0.user.clone());
            }
            Step::User(user) => {
                check_user(user)?;
                kept.user = Some(user.clone());
            }
            Step::Entrypoint(argv) => {
                kept.entrypoint = Some(argv.clone());
                // The arguments were for another program.
                kept.cmd = None;
            }
            Step::Cmd(argv) => kept.cmd = Some(argv.clone()),
        }
        Ok(())
    }

    /// Resolves `path` against the working directory, without `.` and `..`.
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
