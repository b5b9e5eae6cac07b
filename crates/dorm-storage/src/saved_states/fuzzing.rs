//! The entry points of the fuzzers for manifests and listings of saved states, which are on our own
//! disk but may be damaged in any way.

use std::fs;

use dorm_lifecycle::SavedStateId;

use super::{SavedStates, listing, manifest};
use crate::fuzz_input::{first, part};

pub(crate) use super::transfer::fuzzing::transfer;

/// The flags in the first byte.
const SEALED: u8 = 1;

/// Reads a saved state with this manifest and listing, and an empty tree.
pub(crate) fn saved_state(saved_states: &SavedStates, mut data: &[u8]) {
    let how = first(&mut data);
    let manifest = part(&mut data);
    let id = SavedStateId::from_random([7; 20]);
    let directory = saved_states.directory().join(id.as_str());
    fs::create_dir_all(directory.join("root")).expect("a directory");
    let manifest = match how & SEALED {
        0 => manifest.to_vec(),
        _ => manifest::sealed(manifest).unwrap_or_else(|| manifest.to_vec()),
    };
    fs::write(directory.join("manifest.json"), manifest).expect("a manifest");
    fs::write(directory.join("listing"), data).expect("a listing");
    if let Ok(saved_state) = saved_states.load(&id) {
        assert_eq!(saved_state.id, id);
        assert!(saved_state.files.iter().all(|file| file.name.is_relative()));
        let _ = saved_states.sizes(&id);
        let _ = saved_states.check_content(&saved_state);
        let _ = saved_states.layers(&id);
    }
    saved_states.remove(&id).expect("a damaged saved state can be removed");
}

/// Reads a listing.
///
/// # Panics
/// If the listing is encoded differently from how it was read.
pub fn listing(data: &[u8]) {
    let Ok(read) = listing::read(data) else { return };
    let mut text = Vec::new();
    for listed in &read {
        listing::write(&mut text, listed).expect("to write");
    }
    assert_eq!(listing::read(&text[..]).expect("what was written"), read);
}
