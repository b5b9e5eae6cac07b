//! The entry points of the fuzzers for export files.

use std::io::Cursor;
use std::sync::Arc;

use dorm_lifecycle::SavedStateId;

use super::{BLOCK, CONTENT, Exported, ImportAs, Incoming, LISTING, MANIFEST, MEMORY, head, manifest, padding};
use crate::fuzz_input::{first, part};
use crate::saved_states::SavedStates;

/// The flags in the first byte.
const RAW: u8 = 1;
/// Lengths and hashes in the manifest are left as they are.
const LIES: u8 = 2;
const PARTS_MAX: usize = 64;
const BYTES_MAX: u64 = 64 << 20;

/// Imports a file: as it is, or with all the checksums that a forger could compute. In the
/// second case the input is the body of a manifest and the contents of the following entries,
/// each after two bytes with its length.
pub(crate) fn transfer(saved_states: &Arc<SavedStates>, mut data: &[u8]) {
    let how = first(&mut data);
    let file = if how & RAW == 0 {
        let body = part(&mut data);
        let mut parts = Vec::new();
        while !data.is_empty() && parts.len() < PARTS_MAX {
            parts.push(part(&mut data));
        }
        let Some(file) = manifest::of_body(body).and_then(|about| forged(about, &parts, how)) else { return };
        file
    } else {
        data.to_vec()
    };
    let name = ImportAs { saved_state: SavedStateId::from_random([1; 20]), layer: SavedStateId::from_random([2; 20]) };
    let imported = Incoming::open(Box::new(Cursor::new(file))).and_then(|incoming| {
        // An importer checks the room before it unpacks.
        match incoming.about().need_bytes().is_some_and(|bytes| bytes < BYTES_MAX) {
            true => saved_states.import(incoming, &name).map(Some),
            false => Ok(None),
        }
    });
    if let Ok(Some(imported)) = imported {
        for saved_state in imported.layer.iter().chain([&imported.saved_state]) {
            saved_states.check_content(saved_state).expect("a saved state that was imported is sound");
        }
        saved_states.remove(&name.saved_state).expect("it can be removed");
        saved_states.remove(&name.layer).expect("it can be removed");
    }
}

fn forged(mut about: Exported, parts: &[&[u8]], how: u8) -> Option<Vec<u8>> {
    let mut parts = parts.iter().copied();
    let mut entries = Vec::new();
    if let Some(tree) = &mut about.tree {
        let listing = parts.next().unwrap_or_default();
        if how & LIES == 0 {
            tree.listing_bytes = listing.len() as u64;
            tree.listing_blake3 = blake3::hash(listing).to_hex().to_string();
        }
        entries.push((LISTING.to_owned(), listing));
        let files = listing.windows(8).filter(|text| text == b"\"file\":{").count();
        for number in 0..files.min(PARTS_MAX) {
            entries.push((format!("{CONTENT}/{number}"), parts.next().unwrap_or_default()));
        }
    }
    for file in &mut about.memory {
        let content = parts.next().unwrap_or_default();
        if how & LIES == 0 {
            file.bytes = content.len() as u64;
            file.blake3 = blake3::hash(content).to_hex().to_string();
        }
        entries.push((format!("{MEMORY}/{}", file.name.display()), content));
    }
    let text = manifest::text(&about).ok()?;
    let mut file = Vec::new();
    for (name, content) in [(MANIFEST.to_owned(), &text[..])].into_iter().chain(entries) {
        let bytes = content.len() as u64;
        file.extend_from_slice(head(&name, bytes).ok()?.as_bytes());
        file.extend_from_slice(content);
        file.resize(file.len() + usize::try_from(padding(bytes)).ok()?, 0);
    }
    file.resize(file.len() + 2 * usize::try_from(BLOCK).ok()?, 0);
    file.extend(parts.flatten());
    Some(file)
}
