//! Options of a build. Steps run in the order in which they are given, whichever options give them.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use dorm_api_types as wire;
use dorm_build::{Command as Program, Copy, Placed, Step};

use crate::values;

/// Options of `dorm image build`.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildOptions {
    /// The directory to copy files from
    #[arg(default_value = ".", value_name = "CONTEXT")]
    pub(super) context: PathBuf,
    /// The Dockerfile [default: CONTEXT/Dockerfile]
    #[arg(short, long, value_name = "PATH", conflicts_with = "from")]
    pub(super) file: Option<PathBuf>,
    /// Tag the image; another image with this tag loses it
    #[arg(short, long)]
    pub(super) tag: Option<String>,
    /// A value for an ARG of the Dockerfile
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::pair, conflicts_with = "from")]
    pub(super) build_arg: Vec<(String, String)>,
    /// Start from this image and take the steps from the options, in their order, instead of a
    /// Dockerfile
    #[arg(long, value_name = "IMAGE")]
    pub(super) from: Option<String>,
    #[command(flatten)]
    pub(super) steps: Steps,
    /// Run this line with /bin/sh as the image's entrypoint
    #[arg(long, value_name = "LINE")]
    pub(super) cmd: Option<String>,
    /// A line for /bin/sh that exits with 0 as soon as the started image is ready
    #[arg(long, value_name = "LINE")]
    pub(super) ready_cmd: Option<String>,
    /// Make the result a template; with --cmd or --ready-cmd, sandboxes of it have the program
    /// running
    #[arg(long, value_name = "NAME[:TAG]")]
    pub(super) template: Option<String>,
    /// Print the ID of the build and do not wait for its end
    #[arg(long)]
    pub(super) detach: bool,
    /// Run every step, even those whose files are cached
    #[arg(long)]
    pub(super) no_cache: bool,
    /// Time limit of each step
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30m")]
    pub(super) step_timeout: f64,
    /// CPU limit of a step, such as 0.5 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = values::cpus)]
    pub(super) cpus: Option<u32>,
    /// Memory limit of a step [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(super) memory: Option<u64>,
    /// Disk limit of a step; never less than that of earlier steps [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(super) disk: Option<u64>,
    /// Where a step may connect to: public (the internet, never private networks), closed or none
    /// (nowhere), a comma-separated list of networks and host names, such as
    /// 198.51.100.0/24,example.com,*.example.com (no other name resolves), or rules in their order,
    /// such as deny:203.0.113.0/24,allow:*.example.com,default:public
    #[arg(long, value_name = "WHERE", value_parser = values::egress)]
    pub(super) egress: Option<wire::Egress>,
}

/// The steps given as options, in their order.
#[derive(Debug, Default)]
pub(super) struct Steps(pub(super) Vec<Placed>);

type Read = fn(&str) -> Result<Step, String>;

/// Each option: its name, value name, help text and parser.
const STEPS: [(&str, &str, &str, Read); 5] = [
    ("run", "LINE", "Run a line with /bin/sh", |line| Ok(Step::Run(Program::Shell(line.to_owned())))),
    ("copy", "PATH:DESTINATION", "Copy a file, or the content of a directory, from the context", copy),
    ("env", "NAME=VALUE", "Set a variable for all later steps and in the image", |text| {
        values::pair(text).map(|(name, value)| Step::Env(name, value))
    }),
    ("workdir", "PATH", "Set the working directory of later steps and of the image", |path| {
        Ok(Step::Workdir(path.to_owned()))
    }),
    ("user", "USER", "Set the user of later steps and of the image", |user| Ok(Step::User(user.to_owned()))),
];

fn copy(text: &str) -> Result<Step, String> {
    match text.split_once(':') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok(Step::Copy(Copy::new(vec![from.to_owned()], to.to_owned())))
        }
        _ => Err(format!("'{text}' is not PATH:DESTINATION")),
    }
}

impl clap::Args for Steps {
    fn augment_args(command: Command) -> Command {
        STEPS.iter().fold(command, |command, (name, value, help, read)| {
            let read = *read;
            let option = Arg::new(*name).long(*name).value_name(*value).help(*help).action(ArgAction::Append);
            command.arg(option.requires("from").value_parser(move |text: &str| read(text).map(|_| text.to_owned())))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Steps {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut steps = Vec::new();
        for (name, _, _, read) in STEPS {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            for (at, value) in matches.indices_of(name).into_iter().flatten().zip(values) {
                let step = read(value).map_err(|what| clap::Error::raw(clap::error::ErrorKind::InvalidValue, what))?;
                steps.push((at, Placed { line: None, step, arguments: Default::default(), user: None }));
            }
        }
        steps.sort_by_key(|(at, _)| *at);
        Ok(Self(steps.into_iter().map(|(_, step)| step).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        build: BuildOptions,
    }

    #[test]
    fn steps_count_in_the_order_in_which_they_are_typed() {
        let line =
            "build --from a --run one --env X=1 --run two --copy src:/srv/ --user app --workdir /srv --run three";
        let steps = Line::try_parse_from(line.split(' ')).unwrap().build.steps.0;
        let steps: Vec<_> = steps.into_iter().map(|placed| placed.step).collect();
        let run = |line: &str| Step::Run(Program::Shell(line.to_owned()));
        let wanted = [
            run("one"),
            Step::Env("X".into(), "1".into()),
            run("two"),
            Step::Copy(Copy::new(vec!["src".into()], "/srv/".into())),
            Step::User("app".into()),
            Step::Workdir("/srv".into()),
            run("three"),
        ];
        assert_eq!(steps, wanted);
    }

    #[test]
    fn steps_need_an_image_to_begin_with_and_a_place_to_copy_to() {
        for line in ["build --run one", "build --from a --copy src", "build --from a --env X", "build --from a -f b"] {
            assert!(Line::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
