//! Secrets on the command line: given by name, with the value in this command's environment or in a
//! file. Every user of the host can see the arguments of a process, so there is no syntax for a
//! value among them. No value is printed or part of an error.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;

use dorm_api_types::{NamedSecret, Secret};

use crate::cli::problem::Problem;

/// `NAME` or `NAME=@FILE`.
#[derive(Clone)]
pub(super) struct Named {
    name: String,
    from: From,
}

#[derive(Clone)]
enum From {
    /// The value that the name already has.
    Name,
    File(PathBuf),
    /// The argument contained a value, which is dropped at once.
    Argument,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.name).finish()
    }
}

/// Parses one secret. It refuses nothing, since clap prints what it refuses.
#[allow(clippy::unnecessary_wraps, reason = "it is the form of such a function")]
pub(super) fn named(text: &str) -> Result<Named, Infallible> {
    let (name, from) = match text.split_once('=') {
        None => (text, From::Name),
        Some((name, value)) => (name, value.strip_prefix('@').map_or(From::Argument, |path| From::File(path.into()))),
    };
    Ok(Named { name: name.to_owned(), from })
}

impl Named {
    /// Returns the value, or `None` if only the name was given.
    fn value(&self) -> Result<Option<Secret>, Problem> {
        let path = match &self.from {
            From::Name => return Ok(None),
            From::File(path) => path,
            From::Argument => {
                return Err(Problem::usage(
                    format!(
                        "the value of secret '{}' is among the arguments, where every user of this host can see it",
                        self.name
                    ),
                    "write NAME=@FILE for a value in a file, or NAME alone, and change the secret: this value was exposed",
                ));
            }
        };
        let what = format!("read secret '{}' from {}", self.name, path.display());
        let mut value = std::fs::read_to_string(path).map_err(|error| Problem::host(&what, &error))?;
        // Editors and `echo` end a file with a line feed.
        if value.ends_with('\n') {
            value.pop();
        }
        Ok(Some(Secret(value)))
    }
}

/// Returns the secrets of a new sandbox. One without a file takes its value from this process's
/// environment.
pub(super) fn given(named: Vec<Named>) -> Result<BTreeMap<String, Secret>, Problem> {
    let value = |named: Named| match named.value()?.or_else(|| std::env::var(&named.name).ok().map(Secret)) {
        Some(value) => Ok((named.name, value)),
        None => Err(Problem::usage(
            format!("the secret '{}' has no value", named.name),
            "set a variable of that name for this command, or write NAME=@FILE",
        )),
    };
    named.into_iter().map(value).collect()
}

/// Returns the secrets of a clone or fork. One without a file keeps the value of the source.
pub(super) fn following(named: Vec<Named>) -> Result<BTreeMap<String, NamedSecret>, Problem> {
    named.into_iter().map(|named| Ok((named.name.clone(), NamedSecret(named.value()?)))).collect()
}
