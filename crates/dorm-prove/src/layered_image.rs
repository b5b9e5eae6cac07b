//! The image in layers that operations import, pull and remove, and where they find it.

mod registry;
mod source;

use std::path::{Path, PathBuf};

use anyhow::Result;

use self::registry::Registry;

pub(crate) use source::{LINKED, expected, layer_names};

/// The image in layers, as a directory and behind a registry of the proof's own.
pub(crate) struct LayeredImage {
    layout: PathBuf,
    registry: Registry,
}

impl LayeredImage {
    /// Writes the image below `directory`, and serves it.
    pub(crate) fn make(directory: &Path) -> Result<Self> {
        let layout = directory.join("layout");
        source::write(&layout)?;
        let registry = Registry::open(layout.clone())?;
        Ok(Self { layout, registry })
    }

    /// The directory with its OCI layout.
    pub(crate) fn layout(&self) -> &Path {
        &self.layout
    }

    /// The address of the registry that has it.
    pub(crate) fn registry(&self) -> &str {
        self.registry.address()
    }
}
