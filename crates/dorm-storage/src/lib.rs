#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods))]

//! The disk: images that sandboxes start from, and saved states, which hold the memory of sleeping ones or
//! the files of filesystem snapshots.
//!
//! Both are immutable directories. They come into being under another name and get their own by one rename, after
//! everything in them is on the disk: whenever the process dies, an image or a saved state is wholly there or not there.
//! Nothing is ever written into one that exists, and a reader finds out whether it is still what was written.
//!
//! ```text
//! DATA/saved_states/ID.draft/   being written by an engine          IMAGES/.import-N/         being unpacked (flock held)
//! DATA/saved_states/ID/         manifest.json and the files         IMAGES/DIGEST/            image.json and rootfs/
//!                           of memory; or listing and root/
//! DATA/saved_states/ID.gone/    being removed                       IMAGES/layers/DIFFID/     a layer of images
//!                                                               …/guest-ids               whose files they are
//!                                                               IMAGES/tags/TAG           a digest
//! ```
//!
//! The storage does not know sandboxes, engines or records: what a saved state belongs to and when it may go is decided by
//! its callers. `IMAGES` may be shared by several daemons of one host; `DATA` belongs to one.

#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod damage;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod disk;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod hashing;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod images;
#[allow(clippy::disallowed_methods, reason = "all of it runs on threads that may block: see storage")]
mod pace;
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

pub use damage::{DAMAGED, Damage, damage_in};
pub use dorm_guest_ids::GuestIds;
pub use error::StorageError;
pub use images::documents::{
    BlobDigest, Configuration, DOCUMENT_BYTES_MAX, Descriptor, Document, Manifest, Packing, choose, host_architecture,
};
pub use images::{
    ExportedImage, Foreign, Image, ImageConfig, ImageSource, ImportLimits, Owner, Progress, READERS, Spool, Stage,
    closed_to_guests, numbered_user,
};
pub use pace::Pace;
pub use room::{Meter, Room};
pub use saved_states::{
    Below, Copied, Difference, Differing, Expected, Export, ExportNote, Exported, ExportedTree, ImportAs, Imported,
    Incoming, Listed, Lister, SavedState, SavedStateDraft, SavedStateFacts, SavedStateFile, Sizes, TreeFacts,
    TreeWriter, WrittenFile,
};
pub use storage::Storage;
pub use stored::{Checked, DamagedFile, Stored};
