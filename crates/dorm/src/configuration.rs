//! The configuration of the daemon. Each option of `dorm serve` is set by a flag, or else by its
//! environment variable, or else by the configuration file, or else by its default.
//!
//! The definitions of the command line are the only list of options: their names, types and limits
//! hold for the file too, and `dorm config show` reads the origin of a value from them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use serde::Serialize;
use toml::{Table, Value};

/// The origin of the value of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// A flag of the command line.
    Flag,
    /// An environment variable.
    Environment,
    /// The configuration file.
    File,
    /// The definition of the option.
    Default,
}

/// An option of the daemon, and its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Setting {
    /// Its name: that of the flag without dashes in front, and that in the file.
    pub(crate) name: String,
    /// Its environment variable.
    pub(crate) variable: Option<String>,
    /// Its value as it was given. `None` if it has no default: its help then describes the effect.
    pub(crate) value: Option<String>,
    /// The origin of the value.
    pub(crate) origin: Origin,
}

/// The error of a configuration file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot read the configuration file '{}': {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration file '{}' is not TOML: {source}", path.display())]
    Syntax { path: PathBuf, source: toml::de::Error },
    #[error("the configuration file '{}' sets '{key}', which is not an option of `dorm serve`{hint}", path.display())]
    Unknown { path: PathBuf, key: String, hint: String },
    #[error("the configuration file '{}' sets '{key}' to {value}, which is not {expected}", path.display())]
    Kind { path: PathBuf, key: String, value: String, expected: &'static str },
    #[error("the configuration file '{}' sets '{key}': {problem}", path.display())]
    Value { path: PathBuf, key: String, problem: String },
}

/// Returns the options of `command`, which is `dorm serve` or has the same, that a configuration
/// can set.
pub(crate) fn options(command: &Command) -> impl Iterator<Item = &clap::Arg> {
    let is_option = |argument: &&clap::Arg| {
        let is_shown = !argument.is_hide_set() && argument.get_long().is_some_and(|name| name != FILE);
        is_shown && matches!(argument.get_action(), ArgAction::Set | ArgAction::Append | ArgAction::SetTrue)
    };
    // An option without a variable acts once, or is one of the command line alone.
    command.get_arguments().filter(is_option).filter(|argument| argument.get_env().is_some())
}

/// The name of the option that names the file.
pub(crate) const FILE: &str = "config";

/// Returns the arguments for the settings of the file at `path`, except for those that a flag or a
/// variable overrides, and the names of the options that they set.
///
/// # Errors
///
/// Every [`FileError`]. A value is tried on `command` alone, so the error names its key.
pub(crate) fn read(
    path: &Path,
    command: &Command,
    matches: &ArgMatches,
) -> Result<(Vec<OsString>, BTreeSet<String>), FileError> {
    let text = std::fs::read_to_string(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
    let table: Table = text.parse().map_err(|source| FileError::Syntax { path: path.to_owned(), source })?;
    let (mut arguments, mut names) = (Vec::new(), BTreeSet::new());
    for (key, value) in &table {
        let Some(argument) = options(command).find(|argument| argument.get_long() == Some(key)) else {
            return Err(FileError::Unknown { path: path.to_owned(), key: key.clone(), hint: hint(command, key) });
        };
        let said = said(argument, value).map_err(|expected| FileError::Kind {
            path: path.to_owned(),
            key: key.clone(),
            value: value.to_string(),
            expected,
        })?;
        let tried = std::iter::once("dorm".to_owned()).chain(said.iter().cloned());
        if let Err(error) = without_variables(command).try_get_matches_from(tried) {
            let problem = error.to_string();
            let problem = problem.lines().next().unwrap_or_default();
            let problem = problem.strip_prefix("error: ").unwrap_or(problem).to_owned();
            return Err(FileError::Value { path: path.to_owned(), key: key.clone(), problem });
        }
        let source = matches.value_source(argument.get_id().as_str());
        if !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            arguments.extend(said.into_iter().map(OsString::from));
            names.insert(key.clone());
        }
    }
    Ok((arguments, names))
}

/// Returns every option with its value and origin.
pub(crate) fn settings(command: &Command, matches: &ArgMatches, from_file: &BTreeSet<String>) -> Vec<Setting> {
    options(command)
        .map(|argument| {
            let id = argument.get_id().as_str();
            let name = argument.get_long().unwrap_or(id).to_owned();
            let raw = matches
                .get_raw(id)
                .map(|values| values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(", "));
            let origin = match matches.value_source(id) {
                _ if from_file.contains(&name) => Origin::File,
                Some(ValueSource::CommandLine) => Origin::Flag,
                Some(ValueSource::EnvVariable) => Origin::Environment,
                _ => Origin::Default,
            };
            let variable = argument.get_env().map(|name| name.to_string_lossy().into_owned());
            Setting { name, variable, value: raw, origin }
        })
        .collect()
}

/// Returns the arguments that set an option to the value in a file, or the expected kind of value.
fn said(argument: &clap::Arg, value: &Value) -> Result<Vec<String>, &'static str> {
    let name = argument.get_long().unwrap_or_default();
    let scalar = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => Err("a string or a number"),
    };
    let given = |value: &Value| Ok(format!("--{name}={}", scalar(value)?));
    match (argument.get_action(), value) {
        (ArgAction::SetTrue, Value::Boolean(true)) => Ok(vec![format!("--{name}")]),
        (ArgAction::SetTrue, Value::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err("true or false"),
        (ArgAction::Append, Value::Array(values)) => values.iter().map(given).collect(),
        (_, value) => Ok(vec![given(value)?]),
    }
}

/// The same command, which ignores the environment.
fn without_variables(command: &Command) -> Command {
    command.clone().mut_args(|argument| argument.env(None::<&str>))
}

/// Returns the option that was probably meant.
fn hint(command: &Command, key: &str) -> String {
    let flat = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let meant = options(command).filter_map(clap::Arg::get_long).find(|name| {
        let (name, key) = (flat(name), flat(key));
        name == key || name.starts_with(&key) || key.starts_with(&name)
    });
    meant.map(|name| format!("; '{name}' is one")).unwrap_or_default()
}
