//! Reads the changes a guest made to its files out of a memory image of gVisor, without running any
//! guest code.
//!
//! ```text
//! checkpoint.img ─► unframe ─► graph (wire) ─► tree ─► walk ─► sink
//! pages_meta.img ─► graph (wire) ─► pages ──────────────┘
//! pages.img ────────────────────────────────────────────┘  contents, piece by piece
//! pages_map.img ─► map                                     what pages.img leaves out
//!
//! files.img, content.img ─► files_image ─► sink             an image that has only files
//! ```
//!
//! The image itself names its types and fields; `graph` knows no others, and `tree` knows the names
//! that matter. The image was written by a process that its guest may have taken over: anything
//! unexpected is an error, every value is checked against the lengths of the files, and no path
//! leaves the root. This crate does not know how an image is written, what the entries are used
//! for, nor which run an image is of. Every call blocks.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod budget;
mod error;
mod files_image;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod graph;
mod map;
mod pages;
mod read;
#[cfg(test)]
mod sample;
mod told;
mod tree;
mod unframe;
mod walk;
mod whole;
mod wire;

#[cfg(test)]
mod tests;

pub use budget::FilesLimits;
pub use error::MemoryImageError;
pub use files_image::{FILES_IMAGE, has_only_files, read_files_image, written_files_image};
pub use format::MemoryFormat;
pub use map::{BaseFile, OpenFile, PAGES_BASE, PAGES_MAP, PagesMap, PagesPart};
pub use read::{IMAGE_FILES, read};
pub use told::{READERS, read_by};
pub use tree::{AGENT_MOUNT, TMP_OPTIONS};
pub use whole::written;
