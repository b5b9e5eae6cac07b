#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! Images and saved states on the disk. Sandboxes start from images. A saved state holds the memory
//! of a suspended sandbox or of a memory snapshot, or the files of a filesystem snapshot.
//!
//! Both are immutable directories. Each is written under another name, and gets its own by one
//! rename after its whole content is durable: whenever the process dies, an image or a saved state
//! is complete or does not exist. Existing ones are never written to, and a reader can check that
//! they are unchanged.
//!
//! ```text
//! DATA/saved_states/ID.draft/   being written by an engine          IMAGES/.import-N/         being unpacked (flock held)
//! DATA/saved_states/ID/         manifest.json and the files         IMAGES/DIGEST/            image.json and rootfs/
//!                           of memory; or listing and root/
//! DATA/saved_states/ID.gone/    being removed                       IMAGES/layers/DIFFID/     a layer of images
//! DATA/builds/                  contexts and logs of builds
//! DATA/verified.log             marks of files that were read
//!                                                               …/guest-ids               whose files they are
//!                                                               IMAGES/tags/TAG           a digest
//! ```
//!
//! The storage does not know sandboxes, engines or records: its callers decide to what a saved
//! state belongs and when it is removed. `IMAGES` may be shared by several daemons of one host;
//! `DATA` belongs to one.

mod blocking;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod builds;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod check;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod damage;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod disk;
mod error;
mod foreign;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzz_input;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod hashing;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod images;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod pace;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod reread;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod room;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod saved_states;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod sparse;
mod steps;
mod storage;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod stored;

pub use builds::{ListedContext, LogId, LogLine, LogPage, LogStream, StoredContext};
pub use damage::{DAMAGED, Damage, damage_in};
pub use dorm_guest_ids::GuestIds;
pub use dorm_ports::{Progress, Stage};
pub use error::StorageError;
pub use foreign::Foreign;
pub use images::documents::{
    BlobDigest, Configuration, DOCUMENT_BYTES_MAX, Descriptor, Document, Manifest, Packing, choose, host_architecture,
};
pub use images::{
    ExportedImage, Image, ImageConfig, ImageSource, ImportLimits, Owner, READERS, Spool, check_tag, closed_to_guests,
    numbered_user,
};
pub use pace::Pace;
pub use room::{Meter, Room};
pub use saved_states::{
    Below, Copied, Difference, Differing, Expected, Export, ExportNote, Exported, ExportedTree, ImportAs, Imported,
    Incoming, Listed, Lister, MARKS, SavedState, SavedStateDraft, SavedStateFacts, SavedStateFile, Sizes, TreeFacts,
    TreeWriter, WrittenFile,
};
pub use storage::Storage;
pub use stored::{Checked, DamagedFile, Stored};
