//! `dorm config`: the configuration that `dorm serve` would have.

use crate::cli::output::{self, Format};
use crate::cli::problem::Done;
use crate::cli::shown;
use crate::configuration::{FILE, Setting};
use crate::exit;
use crate::serve::ServeOptions;

/// Options of `dorm config`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigOptions {
    #[command(subcommand)]
    pub(super) verb: ConfigVerb,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum ConfigVerb {
    /// Show each option of `dorm serve`, its value and where that comes from: a flag, the
    /// environment, the configuration file or the default. Takes the options of `dorm serve`
    #[command(mut_args(hide_unless_own))]
    Show(Box<ShowOptions>),
}

/// Options of `dorm config show`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowOptions {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    _serve: ServeOptions,
    #[arg(skip)]
    pub(super) settings: Vec<Setting>,
}

/// Hides the options of `dorm serve`, which has help for them, but that for the file.
fn hide_unless_own(argument: clap::Arg) -> clap::Arg {
    let is_own = [FILE, "output"].contains(&argument.get_id().as_str());
    argument.hide(!is_own)
}

/// Runs `dorm config`.
pub(crate) fn run(options: ConfigOptions) -> Done {
    let ConfigVerb::Show(options) = options.verb;
    match options.output {
        Format::Json => output::json(&options.settings)?,
        Format::Table => {
            let rows: Vec<_> = options.settings.iter().map(row).collect();
            output::table(&["OPTION", "VALUE", "ORIGIN", "VARIABLE"], &rows)?;
        }
    }
    Ok(exit::OK)
}

fn row(setting: &Setting) -> Vec<String> {
    let Setting { name, variable, value, origin } = setting;
    let value = value.as_deref().unwrap_or("not set");
    vec![name.clone(), value.to_owned(), shown::word(origin), variable.clone().unwrap_or_else(shown::none)]
}
