//! Parses the subset of Dockerfiles that build steps can express. Everything else is rejected with
//! its line number: an image that silently differs from its Dockerfile is worse than none.

use std::collections::BTreeMap;

use parse_dockerfile::{Command as Words, Flag, Instruction, Source};

use crate::BuildError;
use crate::plan::{Command, Copy, Kept, Placed, Plan, Settings, Step, octal_mode};
use crate::words::{Values, expand, split};

/// Returns the plan of a Dockerfile. `arguments` are the values of its `ARG`s. `base` contains the
/// settings of its base image, whose variables may be used in the file; the choice of the base
/// image does not depend on `base`.
///
/// # Errors
/// The line that is not supported, with an alternative; or an argument that no `ARG` declares.
pub fn from_dockerfile(text: &str, arguments: &BTreeMap<String, String>, base: &Kept) -> Result<Plan, BuildError> {
    let parsed = parse_dockerfile::parse(text)
        .map_err(|error| BuildError::Line { line: error.line().max(1), what: without_place(&error.to_string()) })?;
    let reader = Reader {
        text,
        given: arguments,
        known: Vec::new(),
        arguments: Values::new(),
        base,
        settings: Settings::default(),
        plan: None,
    };
    if let Some(escape) = &parsed.parser_directives.escape
        && escape.value.value != '\\'
    {
        return Err(reader.error(escape.value.span.start, "only \\ can be the escape character"));
    }
    reader.read(&parsed.instructions)
}

/// Removes the position at the end of the parser's message, which is reported separately.
fn without_place(text: &str) -> String {
    text.split(" at line ").next().unwrap_or(text).to_owned()
}

struct Reader<'a> {
    text: &'a str,
    given: &'a BTreeMap<String, String>,
    /// The arguments that an `ARG` has declared.
    known: Vec<String>,
    base: &'a Kept,
    arguments: Values,
    settings: Settings,
    plan: Option<Plan>,
}

impl Reader<'_> {
    fn error(&self, at: usize, what: impl Into<String>) -> BuildError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        BuildError::Line { line: 1 + before.iter().filter(|byte| **byte == b'\n').count(), what: what.into() }
    }

    fn read(mut self, instructions: &[Instruction<'_>]) -> Result<Plan, BuildError> {
        for instruction in instructions {
            let at = start(instruction);
            match self.steps(instruction) {
                Ok(steps) => self.add(at, steps)?,
                Err(what) => return Err(self.error(at, what)),
            }
        }
        if let Some(unknown) = self.given.keys().find(|name| !self.known.contains(name)) {
            let what = format!("a value was given for ARG {unknown}, which the Dockerfile does not declare");
            return Err(BuildError::Step { what });
        }
        self.plan
            .ok_or_else(|| BuildError::Line { line: 1, what: "a Dockerfile must begin with FROM IMAGE".to_owned() })
    }

    fn add(&mut self, at: usize, steps: Vec<Step>) -> Result<(), BuildError> {
        let line = match self.error(at, "") {
            BuildError::Line { line, .. } => Some(line),
            BuildError::Step { .. } => None,
        };
        for step in steps {
            if let Err(BuildError::Step { what }) = self.settings.apply(&step) {
                return Err(self.error(at, what));
            }
            // A variable takes precedence over an argument of the same name.
            let set = |name: &String| self.settings.0.env.contains_key(name);
            let arguments = match step {
                Step::Run(_) => self.arguments.clone().into_iter().filter(|(name, _)| !set(name)).collect(),
                _ => BTreeMap::new(),
            };
            if let Some(plan) = &mut self.plan {
                plan.steps.push(Placed { line, step, arguments, user: None });
            }
        }
        Ok(())
    }

    fn values(&self) -> Values {
        let mut values = self.arguments.clone();
        values.extend(self.settings.0.env.clone());
        values
    }

    fn steps(&mut self, instruction: &Instruction<'_>) -> Result<Vec<Step>, String> {
        let is_before_from = self.plan.is_none() && !matches!(instruction, Instruction::From(_) | Instruction::Arg(_));
        if is_before_from {
            return Err("a Dockerfile must begin with FROM IMAGE".to_owned());
        }
        let values = self.values();
        Ok(match instruction {
            Instruction::From(from) => {
                no_options("FROM", &from.options)?;
                if self.plan.is_some() {
                    return Err("only one FROM is supported: build the other stage as a separate image".to_owned());
                }
                let image = expand(&from.image.value, &values)?;
                if image == "scratch" {
                    return Err(
                        "the image 'scratch' is not supported, as no program can run in it: use another base image"
                            .to_owned(),
                    );
                }
                self.plan = Some(Plan { from: image, steps: Vec::new() });
                // Arguments that are declared before FROM only apply to FROM.
                self.arguments.clear();
                self.settings = Settings(self.base.clone());
                Vec::new()
            }
            Instruction::Arg(arg) => {
                for word in split(&arg.arguments.value, &values)? {
                    let (name, default) = word.split_once('=').map_or((&word[..], None), |(n, d)| (n, Some(d)));
                    self.known.push(name.to_owned());
                    if let Some(value) = self.given.get(name).map(String::as_str).or(default) {
                        self.arguments.insert(name.to_owned(), value.to_owned());
                    }
                }
                Vec::new()
            }
            Instruction::Env(env) => {
                let pair = |word: String| match word.split_once('=') {
                    Some((name, value)) => Ok(Step::Env(name.to_owned(), value.to_owned())),
                    None => Err(format!("ENV {word} is invalid: write ENV NAME=VALUE")),
                };
                split(&env.arguments.value, &values)?.into_iter().map(pair).collect::<Result<_, _>>()?
            }
            Instruction::Workdir(workdir) => vec![Step::Workdir(expand(&workdir.arguments.value, &values)?)],
            Instruction::User(user) => vec![Step::User(expand(&user.arguments.value, &values)?)],
            Instruction::Run(run) => {
                no_options("RUN", &run.options)?;
                if !run.here_docs.is_empty() {
                    return Err("RUN with a here-document is not supported: COPY a script and run it".to_owned());
                }
                vec![Step::Run(command(&run.arguments)?)]
            }
            Instruction::Copy(copy) => {
                let (owner, mode) = copy_options(&copy.options, &values)?;
                let from = copy.src.iter().map(|source| match source {
                    Source::Path(path) => expand(&path.value, &values),
                    _ => Err(
                        "COPY with a here-document is not supported: put the content into a file beside the Dockerfile"
                            .to_owned(),
                    ),
                });
                let (from, to) = (from.collect::<Result<_, _>>()?, expand(&copy.dest.value, &values)?);
                vec![Step::Copy(Copy { from, to, owner, mode })]
            }
            Instruction::Entrypoint(entrypoint) => vec![Step::Entrypoint(command(&entrypoint.arguments)?.argv())],
            Instruction::Cmd(cmd) => vec![Step::Cmd(command(&cmd.arguments)?.argv())],
            other => return Err(refused(other).to_owned()),
        })
    }
}

/// Returns why an instruction is not supported.
fn refused(instruction: &Instruction<'_>) -> &'static str {
    match instruction {
        Instruction::Add(_) => "ADD is not supported: use COPY for files, and RUN to download or unpack others",
        Instruction::Expose(_) => "EXPOSE is not supported: remove it, as every port of a sandbox can be reached",
        Instruction::Healthcheck(_) => {
            "HEALTHCHECK is not supported: use --ready-cmd to define when a sandbox is ready"
        }
        Instruction::Label(_) | Instruction::Maintainer(_) => {
            "labels are not supported: remove the instruction, and use tags"
        }
        Instruction::Onbuild(_) => "ONBUILD is not supported: write its steps where they are needed",
        Instruction::Shell(_) => "SHELL is not supported: write RUN [\"program\", \"argument\"]",
        Instruction::Stopsignal(_) => "STOPSIGNAL is not supported: remove it, as sandboxes are suspended, not stopped",
        Instruction::Volume(_) => {
            "VOLUME is not supported: remove it, as volumes are attached when a sandbox is created"
        }
        _ => "this instruction is not supported",
    }
}

fn no_options(instruction: &str, options: &[Flag<'_>]) -> Result<(), String> {
    match options.first() {
        None => Ok(()),
        Some(option) => {
            let instead = match (instruction, &*option.name.value) {
                ("COPY", "from") => "build the other stage as a separate image and use it as the base image",
                _ => "remove it",
            };
            Err(format!("{instruction} --{} is not supported: {instead}", option.name.value))
        }
    }
}

/// Returns the owner and the permission bits that the options of a COPY name.
fn copy_options(options: &[Flag<'_>], values: &Values) -> Result<(Option<String>, Option<u32>), String> {
    let (mut owner, mut mode) = (None, None);
    for option in options {
        let name = &*option.name.value;
        let value = || match &option.value {
            Some(value) => expand(&value.value, values),
            None => Err(format!("COPY --{name} needs a value: write --{name}=VALUE")),
        };
        match name {
            "chown" => owner = Some(value()?),
            "chmod" => mode = Some(octal_mode(&value()?).map_err(|error| format!("COPY --chmod: {error}"))?),
            _ => no_options("COPY", std::slice::from_ref(option))?,
        }
    }
    Ok((owner, mode))
}

fn command(words: &Words<'_>) -> Result<Command, String> {
    Ok(match words {
        Words::Exec(argv) => Command::Argv(argv.value.iter().map(|word| word.value.clone().into_owned()).collect()),
        Words::Shell(line) => Command::Shell(joined(line.value)),
        _ => return Err("this form of the command is not supported".to_owned()),
    })
}

/// Joins the lines of one command: removes continuations, and the comments and empty lines between
/// them.
fn joined(text: &str) -> String {
    let mut lines = text.lines();
    let mut line = lines.next().unwrap_or_default().to_owned();
    for next in lines {
        let is_between = next.trim().is_empty() || next.trim_start().starts_with('#');
        let ends = line.trim_end();
        if !is_between && let Some(before) = ends.strip_suffix('\\') {
            line = format!("{before}{next}");
        } else if !is_between {
            line = format!("{line}\n{next}");
        }
    }
    line.trim().to_owned()
}

fn start(instruction: &Instruction<'_>) -> usize {
    match instruction {
        Instruction::Add(it) => it.add.span.start,
        Instruction::Arg(it) => it.arg.span.start,
        Instruction::Cmd(it) => it.cmd.span.start,
        Instruction::Copy(it) => it.copy.span.start,
        Instruction::Entrypoint(it) => it.entrypoint.span.start,
        Instruction::Env(it) => it.env.span.start,
        Instruction::Expose(it) => it.expose.span.start,
        Instruction::From(it) => it.from.span.start,
        Instruction::Healthcheck(it) => it.healthcheck.span.start,
        Instruction::Label(it) => it.label.span.start,
        Instruction::Maintainer(it) => it.maintainer.span.start,
        Instruction::Onbuild(it) => it.onbuild.span.start,
        Instruction::Run(it) => it.run.span.start,
        Instruction::Shell(it) => it.shell.span.start,
        Instruction::Stopsignal(it) => it.stopsignal.span.start,
        Instruction::User(it) => it.user.span.start,
        Instruction::Volume(it) => it.volume.span.start,
        Instruction::Workdir(it) => it.workdir.span.start,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
