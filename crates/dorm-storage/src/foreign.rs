//! Another data directory that needs an image, as errors and responses name it.

use std::fmt;
use std::path::PathBuf;

/// Another data directory that needs an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Its ID.
    pub id: String,
    /// Its path at the last start of its daemon; `None` if that cannot be read.
    pub data: Option<PathBuf>,
    /// The directory of its references. Deleting it makes the data directory count as gone.
    pub references: PathBuf,
}

#[allow(clippy::disallowed_methods, reason = "one look at a directory when a refusal is shown")]
impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.data {
            Some(data) if data.is_dir() => write!(f, "the data directory {} ({})", data.display(), self.id),
            Some(data) => write!(f, "the data directory {} ({}), which does not exist now", data.display(), self.id),
            None => write!(f, "the data directory with the ID {}", self.id),
        }
    }
}
