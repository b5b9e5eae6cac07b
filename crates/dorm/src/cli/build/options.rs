//! What can be asked of a build. Steps count in the order in which they are typed, whatever options they come as.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use dorm_api::wire;
use dorm_build::{Command as Program, Copy, Placed, Step};

use crate::cli::values;

/// How to build.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildOptions {
    /// The directory that files are copied from
    #[arg(default_value = ".", value_name = "CONTEXT")]
    pub(super) context: PathBuf,
    /// The Dockerfile [default: CONTEXT/Dockerfile]
    #[arg(short, long, value_name = "PATH", conflicts_with = "from")]
    pub(super) file: Option<PathBuf>,
    /// Name the image; another image that had this tag loses it
    #[arg(short, long)]
    pub(super) tag: Option<String>,
    /// A value for an ARG of the Dockerfile
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::pair, conflicts_with = "from")]
    pub(super) build_arg: Vec<(String, String)>,
    /// Begin with this image, and take the steps from the options, in their order, instead of a Dockerfile
    #[arg(long, value_name = "IMAGE")]
    pub(super) from: Option<String>,
    #[command(flatten)]
    pub(super) steps: Steps,
    /// A line for /bin/sh that what the image is started with is run by
    #[arg(long, value_name = "LINE")]
    pub(super) cmd: Option<String>,
    /// A line for /bin/sh that ends with 0 as soon as what the image is started with can be used
    #[arg(long, value_name = "LINE")]
    pub(super) ready_cmd: Option<String>,
    /// Run every step, also those whose files are here
    #[arg(long)]
    pub(super) no_cache: bool,
    /// How long each step may take
    #[arg(long, value_name = "TIME", value_parser = values::duration, default_value = "30m")]
    pub(super) step_timeout: f64,
    /// How many CPUs a step may use, such as 0.5 [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = values::cpus)]
    pub(super) cpus: Option<u32>,
    /// The memory of a step [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(super) memory: Option<u64>,
    /// What a step may write to its disk, no less than steps before it [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(super) disk: Option<u64>,
    /// Where a step may connect to: public (the internet, never private networks), none, or networks and host names with
    /// commas between, such as 198.51.100.0/24,example.com,*.example.com; no other name resolves
    #[arg(long, value_name = "WHERE", value_parser = values::egress)]
    pub(super) egress: Option<wire::Egress>,
}

/// The steps that came as options, in their order.
#[derive(Debug, Default)]
pub(super) struct Steps(pub(super) Vec<Placed>);

type Read = fn(&str) -> Result<Step, String>;

/// Each option, what its value is called, what it does, and how it is read.
const STEPS: [(&str, &str, &str, Read); 5] = [
    ("run", "LINE", "Run a line by /bin/sh", |line| Ok(Step::Run(Program::Shell(line.to_owned())))),
    ("copy", "PATH:DESTINATION", "Copy a file, or what is in a directory, of the context", copy),
    ("env", "NAME=VALUE", "Set a variable for all steps that follow, and in the image", |text| {
        values::pair(text).map(|(name, value)| Step::Env(name, value))
    }),
    ("workdir", "PATH", "Set the directory in which later steps and programs of the image begin", |path| {
        Ok(Step::Workdir(path.to_owned()))
    }),
    ("user", "USER", "Set as whom later steps and programs of the image run", |user| Ok(Step::User(user.to_owned()))),
];

fn copy(text: &str) -> Result<Step, String> {
    match text.split_once(':') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok(Step::Copy(Copy { from: vec![from.to_owned()], to: to.to_owned() }))
        }
        _ => Err(format!("'{text}' does not say what to copy and where to: write PATH:DESTINATION")),
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
                steps.push((at, Placed { line: None, step, arguments: Default::default() }));
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
            Step::Copy(Copy { from: vec!["src".into()], to: "/srv/".into() }),
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
