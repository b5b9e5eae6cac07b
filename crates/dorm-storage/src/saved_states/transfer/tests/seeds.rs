//! Inputs for the fuzzers of export files and of saved states.

use std::fs;

use super::*;
use crate::fuzzing::tests::{pass_all, seed};

fn behind_length(content: &[u8]) -> Vec<u8> {
    let content = content.get(..content.len().min(2000)).unwrap();
    [&u16::try_from(content.len()).unwrap().to_le_bytes()[..], content].concat()
}

/// The body of the manifest of a file, and the contents of its other entries.
fn parts(file: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = 0;
    while file[at] != 0 {
        let header = tar::Header::from_byte_slice(&file[at..at + 512]);
        let bytes = usize::try_from(header.entry_size().unwrap()).unwrap();
        let content = &file[at + 512..at + 512 + bytes];
        match all.is_empty() {
            true => {
                let manifest: serde_json::Value = serde_json::from_slice(content).unwrap();
                all.extend(behind_length(manifest["body"].to_string().as_bytes()));
            }
            false => all.extend(behind_length(content)),
        }
        at += 512 + bytes.next_multiple_of(512);
    }
    all
}

#[tokio::test]
async fn files_that_fuzzers_begin_with_pass() {
    let (_home, storage) = home();
    of_memory(&storage).await;
    for number in [1, 3] {
        let file = exported(&storage, number).await.1;
        seed("transfer", &format!("forged-{number}"), &[vec![0], parts(&file)].concat());
    }
    let file = exported(&storage, 1).await.1;
    seed("transfer", "whole", &[&[1], &file[..]].concat());
    pass_all("transfer", |fuzzed, data| fuzzed.transfer(data));
}

#[tokio::test]
async fn saved_states_that_fuzzers_begin_with_pass() {
    let (_home, storage) = home();
    of_memory(&storage).await;
    for number in [1, 3] {
        let directory = storage.saved_state(&id(number)).await.unwrap().directory;
        let manifest = fs::read(directory.join("manifest.json")).unwrap();
        let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        manifest["body"]["saved_state"] = dorm_lifecycle::SavedStateId::from_random([7; 20]).to_string().into();
        let listing = fs::read(directory.join("listing")).unwrap_or_default();
        let body = behind_length(manifest["body"].to_string().as_bytes());
        seed("saved_state", &format!("sealed-{number}"), &[vec![1], body, listing.clone()].concat());
        if number == 1 {
            seed("listing", "one", &listing);
        }
    }
    pass_all("saved_state", |fuzzed, data| fuzzed.saved_state(data));
    pass_all("listing", |_, data| crate::fuzzing::listing(data));
}
