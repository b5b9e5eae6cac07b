//! Which secrets follow to a sandbox that goes on from another: those that are named, and no others.

use std::collections::BTreeMap;
use std::fmt;

use dorm_lifecycle::{SandboxSpec, Variables};

/// A secret that is named for a clone or a child.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretAsked {
    /// With the value that the source has.
    Kept,
    /// With this value.
    Value(String),
}

impl fmt::Debug for SecretAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "Kept",
            Self::Value(_) => "Value(..)",
        })
    }
}

/// Secrets by name, as they are named for a clone or a child.
pub type SecretsAsked = BTreeMap<String, SecretAsked>;

/// The secrets of whoever goes on from `source`.
///
/// # Errors
/// The name of one that is to be kept and that the source does not have.
pub(crate) fn following(source: &SandboxSpec, asked: &SecretsAsked) -> Result<Variables, String> {
    let value = |name: &String, asked: &SecretAsked| match asked {
        SecretAsked::Value(value) => Ok(value.clone()),
        SecretAsked::Kept => source.secrets.0.get(name).cloned().ok_or_else(|| name.clone()),
    };
    asked.iter().map(|(name, asked)| Ok((name.clone(), value(name, asked)?))).collect::<Result<_, _>>().map(Variables)
}
