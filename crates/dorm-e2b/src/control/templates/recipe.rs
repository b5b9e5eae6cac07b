//! Steps of E2B as steps of a build.
//!
//! E2B prepares each image: commands run as the user `user` in `/home/user`, and users and
//! directories that steps name are created. The steps for this are added here. A step knows the
//! number that the client gives it, so that a failure can be reported as that of this number.

use dorm_build::{Command, Copy, Step, octal_mode};
use dorm_lifecycle::Digest;
use dorm_store::PlannedStep;

use super::wire::StepRequest;
use crate::error::Refusal;

/// The user whom E2B adds to each image.
const USER: &str = "user";
const HOME: &str = "/home/user";
const ROOT: &str = "root";

/// Creates the user `$0` who may do everything, unless it exists.
const ADD_USER: &str = r#"
id -u "$0" >/dev/null 2>&1 || {
    shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash
    if command -v useradd >/dev/null 2>&1; then useradd -m -s "$shell" "$0"; else adduser -D -s "$shell" "$0"; fi
}
"#;
/// Lets the user `$0` do everything without a password, where the image has `sudo`.
const ADD_SUDO: &str = r#"
if [ -d /etc/sudoers.d ]; then
    umask 0337 && echo "$0 ALL=(ALL:ALL) NOPASSWD: ALL" >"/etc/sudoers.d/$0"
fi
"#;

/// The image that a build begins with.
pub(super) struct Base {
    /// The name or the digest of the image.
    pub(super) from: String,
    /// The user of its commands; none for an image that is not prepared yet.
    user: Option<String>,
    /// The lines that start the program of the template that it is of, and tell when it is ready.
    pub(super) program: (Option<String>, Option<String>),
}

impl Base {
    /// An image to prepare.
    pub(super) fn image(from: String) -> Self {
        Self { from, user: None, program: (None, None) }
    }

    /// The image of a template.
    pub(super) fn template(from: String, user: Option<String>, program: (Option<String>, Option<String>)) -> Self {
        Self { from, user: Some(user.unwrap_or_else(|| ROOT.to_owned())), program }
    }
}

/// The steps of a build while they are read.
pub(super) struct Steps {
    steps: Vec<PlannedStep>,
    /// The user of the commands of later steps.
    user: String,
    /// How many steps the client has given.
    count: u64,
    /// Whether a working directory may not exist yet.
    lacks_directory: bool,
}

impl Steps {
    /// Begins with the steps that prepare the image.
    pub(super) fn new(base: &Base) -> Self {
        let mut begun = Self { steps: Vec::new(), user: ROOT.to_owned(), count: 0, lacks_directory: false };
        match &base.user {
            Some(user) => begun.user.clone_from(user),
            None => {
                let script = format!("set -e{ADD_USER}{ADD_SUDO}");
                begun.steps.push(as_root(&script, USER));
                begun.steps.push(Step::User(USER.to_owned()).into());
                begun.steps.push(Step::Workdir(HOME.to_owned()).into());
                begun.user = USER.to_owned();
            }
        }
        begun
    }

    /// Adds a step of the client.
    pub(super) fn add(&mut self, asked: StepRequest) -> Result<(), Refusal> {
        self.count += 1;
        let number = self.count;
        let StepRequest { kind, args, files_hash, force } = asked;
        let args = args.unwrap_or_default();
        let bad = |what: String| Refusal::invalid(format!("step {number}, {kind}: {what}"));
        let planned = match kind.to_ascii_uppercase().as_str() {
            "RUN" => vec![run(&args).map_err(bad)?],
            "COPY" => vec![self.copy(&args, files_hash.as_deref()).map_err(bad)?],
            "ENV" => env(&args).map_err(bad)?,
            "WORKDIR" => vec![workdir(&args).map_err(bad)?],
            "USER" => self.user(&args).map_err(bad)?,
            _ => return Err(bad("there is no such step: steps are RUN, COPY, ENV, WORKDIR and USER".to_owned())),
        };
        for planned in &planned {
            match &planned.step {
                Step::Run(_) | Step::Copy(_) => self.lacks_directory = false,
                Step::Workdir(_) => self.lacks_directory = true,
                Step::Env(..) | Step::User(_) | Step::Entrypoint(_) | Step::Cmd(_) => {}
            }
        }
        let is_forced = force.unwrap_or(false);
        self.steps.extend(planned.into_iter().map(|step| PlannedStep { line: Some(number), is_forced, ..step }));
        Ok(())
    }

    /// Returns all steps. The last working directory is created by a step that does nothing else.
    pub(super) fn finish(mut self) -> Vec<PlannedStep> {
        if self.lacks_directory {
            let made = PlannedStep { line: Some(self.count), ..as_root("true", USER) };
            self.steps.push(made);
        }
        self.steps
    }

    fn copy(&self, args: &[String], files: Option<&str>) -> Result<PlannedStep, String> {
        let (from, to, owner, mode) = match args {
            [from, to] => (from, to, "", ""),
            [from, to, owner] => (from, to, owner.as_str(), ""),
            [from, to, owner, mode] => (from, to, owner.as_str(), mode.as_str()),
            _ => return Err("it needs a source and a destination, and may have an owner and a mode".to_owned()),
        };
        let files = files.ok_or("it has no filesHash")?;
        let context: Digest = files.parse().map_err(|_| format!("filesHash is '{files}', which is no SHA-256 hash"))?;
        let owner = if owner.is_empty() { self.user.as_str() } else { owner };
        let mode = Some(mode).filter(|mode| !mode.is_empty()).map(octal_mode).transpose();
        let copy = Copy {
            from: vec![without_pattern(from)],
            to: to.clone(),
            owner: Some(owner.to_owned()),
            mode: mode.map_err(|error| error.to_string())?,
        };
        Ok(PlannedStep { context: Some(context), ..Step::Copy(copy).into() })
    }

    fn user(&mut self, args: &[String]) -> Result<Vec<PlannedStep>, String> {
        let (name, sudo) = match args {
            [name] => (name, false),
            [name, sudo] => (name, sudo == "true"),
            _ => return Err("it needs the name of a user".to_owned()),
        };
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(legal) {
            return Err(format!("'{name}' is not the name of a user"));
        }
        self.user.clone_from(name);
        let exists = [ROOT, USER].contains(&name.as_str()) || name.contains(':');
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        let mut steps = Vec::new();
        if sudo {
            steps.push(as_root(&format!("set -e{ADD_USER}{ADD_SUDO}"), name));
        } else if !exists && !is_number {
            steps.push(as_root(&format!("set -e{ADD_USER}"), name));
        }
        steps.push(Step::User(name.clone()).into());
        Ok(steps)
    }
}

/// A script that runs as root, with `$0`.
fn as_root(script: &str, argument: &str) -> PlannedStep {
    let words = ["/bin/sh", "-c", script, argument].map(str::to_owned);
    PlannedStep { user: Some("0".to_owned()), ..Step::Run(Command::Argv(words.to_vec())).into() }
}

fn run(args: &[String]) -> Result<PlannedStep, String> {
    let (line, user) = match args {
        [line] => (line, None),
        [line, user] => (line, Some(user.clone()).filter(|user| !user.is_empty())),
        _ => return Err("it needs a command, and may have a user".to_owned()),
    };
    Ok(PlannedStep { user, ..Step::Run(Command::Login(line.clone())).into() })
}

fn env(args: &[String]) -> Result<Vec<PlannedStep>, String> {
    let (pairs, rest) = args.as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err("it needs names and values in turn".to_owned());
    }
    Ok(pairs.iter().map(|[name, value]| Step::Env(name.clone(), value.clone()).into()).collect())
}

fn workdir(args: &[String]) -> Result<PlannedStep, String> {
    match args {
        [path] => Ok(Step::Workdir(path.clone()).into()),
        _ => Err("it needs a path".to_owned()),
    }
}

/// Returns the part of a source before its first pattern. The client has applied the pattern: its
/// archive contains nothing else, with paths from the root of its context.
fn without_pattern(source: &str) -> String {
    let has_pattern = |part: &&str| part.contains(['*', '?', '[', '{']);
    if !source.split('/').any(|part| has_pattern(&part)) {
        return source.to_owned();
    }
    let parts: Vec<&str> = source.split('/').take_while(|part| !has_pattern(part)).collect();
    match parts.is_empty() {
        true => ".".to_owned(),
        false => parts.join("/"),
    }
}

/// Returns a line for `/bin/sh` that runs `line` in a login shell, as E2B does.
pub(super) fn login_line(line: &str) -> String {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    let words: Vec<String> = Command::Login(line.to_owned()).argv().iter().map(quoted).collect();
    format!("exec {}", words.join(" "))
}

/// Stands in for `ss`, which the clients' check of a port calls, in an image that lacks it:
/// `ss -Htuln sport = :PORT` prints the sockets that listen on a port.
const SS: &str = r#"command -v ss >/dev/null 2>&1 || ss() {
    p=$(printf %04X "${4#:}"); grep -Ehs ":$p 0+:0000 0A " /proc/net/tcp /proc/net/tcp6
    grep -Ehs ":$p 0+:0000 07 " /proc/net/udp /proc/net/udp6
}
"#;

/// Returns the line for `/bin/sh` that checks with `line` whether a program is ready.
pub(super) fn ready_line(line: &str) -> String {
    login_line(&format!("{SS}{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: &str, args: &[&str]) -> StepRequest {
        let args = Some(args.iter().map(|arg| (*arg).to_owned()).collect());
        StepRequest { kind: kind.to_owned(), args, files_hash: Some("a".repeat(64)), force: None }
    }

    fn added(base: &Base, asked: &[(&str, &[&str])]) -> Vec<PlannedStep> {
        let mut steps = Steps::new(base);
        for (kind, args) in asked {
            steps.add(request(kind, args)).unwrap();
        }
        steps.finish()
    }

    #[test]
    fn a_step_keeps_the_number_of_the_client() {
        let all = added(
            &Base::image("base".to_owned()),
            &[("RUN", &["a"]), ("ENV", &["A", "1", "B", "2"]), ("RUN", &["b", "root"])],
        );
        let lines: Vec<_> = all.iter().map(|step| step.line).collect();
        assert_eq!(lines, [None, None, None, Some(1), Some(2), Some(2), Some(3)]);
        assert_eq!(all.last().unwrap().user.as_deref(), Some("root"));
    }

    #[test]
    fn files_belong_to_the_user_of_the_steps() {
        let owner = |base: &Base, asked: &[(&str, &[&str])]| match &added(base, asked).last().unwrap().step {
            Step::Copy(copy) => copy.owner.clone().unwrap(),
            step => panic!("{step:?}"),
        };
        let image = Base::image("base".to_owned());
        assert_eq!(owner(&image, &[("COPY", &["a", "b", "", ""])]), "user");
        assert_eq!(owner(&image, &[("USER", &["root"]), ("COPY", &["a", "b"])]), "root");
        assert_eq!(owner(&image, &[("COPY", &["a", "b", "app", "0755"])]), "app");
        let template = Base::template("x".to_owned(), Some("app".to_owned()), (None, None));
        assert_eq!(owner(&template, &[("COPY", &["a", "b"])]), "app");
    }

    #[test]
    fn a_pattern_stands_for_the_directory_above_it() {
        for (source, plain) in
            [("*.txt", "."), ("src/*.py", "src"), ("a/**/b", "a"), ("a/b", "a/b"), (".", "."), ("./*", ".")]
        {
            assert_eq!(without_pattern(source), plain);
        }
    }

    #[test]
    fn a_last_working_directory_is_created() {
        let all = added(&Base::image("base".to_owned()), &[("WORKDIR", &["/app"])]);
        assert!(matches!(all.last().unwrap().step, Step::Run(_)));
        let all = added(&Base::image("base".to_owned()), &[("WORKDIR", &["/app"]), ("RUN", &["make"])]);
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn what_is_no_step_is_refused_by_its_number() {
        for (kind, args) in [
            ("RUN", &[][..]),
            ("RUN", &["a", "b", "c"]),
            ("COPY", &["a"]),
            ("ENV", &["A"]),
            ("ENV", &[]),
            ("USER", &["-x"]),
        ] {
            let refused = Steps::new(&Base::image("base".to_owned())).add(request(kind, args)).unwrap_err();
            assert!(refused.message().starts_with("step 1, "), "{}", refused.message());
        }
        let refused = Steps::new(&Base::image("base".to_owned())).add(request("EXPOSE", &["1"])).unwrap_err();
        assert!(refused.message().contains("EXPOSE"), "{}", refused.message());
    }

    #[test]
    fn a_line_is_quoted_for_the_shell() {
        let line = login_line("echo 'a b' \"$HOME\"");
        assert!(line.ends_with(r#" 'echo '\''a b'\'' "$HOME"'"#), "{line}");
    }
}
