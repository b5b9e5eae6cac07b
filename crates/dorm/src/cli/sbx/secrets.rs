//! Secrets as they are given on the command line. Their values are neither printed nor part of a complaint.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use dorm_api::wire::{NamedSecret, Secret};

use crate::cli::problem::Problem;

/// `NAME` or `NAME=VALUE`.
#[derive(Clone)]
pub(super) struct Named {
    name: String,
    value: Option<String>,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Named").field(&self.name).finish()
    }
}

/// Reads one. Nothing is refused here, since what is refused is shown.
#[allow(clippy::unnecessary_wraps, reason = "it is the form of such a function")]
pub(super) fn named(text: &str) -> Result<Named, Infallible> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.to_owned())));
    Ok(Named { name: name.to_owned(), value })
}

/// For a new sandbox: one without a value is taken from this program's own environment, so that it is in no history of
/// a shell.
pub(super) fn given(named: Vec<Named>) -> Result<BTreeMap<String, Secret>, Problem> {
    let value = |named: Named| match named.value.or_else(|| std::env::var(&named.name).ok()) {
        Some(value) => Ok((named.name, Secret(value))),
        None => Err(Problem::usage(
            format!("the secret '{}' has no value", named.name),
            "set a variable of that name for this command, or write NAME=VALUE",
        )),
    };
    named.into_iter().map(value).collect()
}

/// For a sandbox that goes on from another: one without a value keeps that of the source.
pub(super) fn following(named: Vec<Named>) -> BTreeMap<String, NamedSecret> {
    named.into_iter().map(|named| (named.name, NamedSecret(named.value.map(Secret)))).collect()
}
