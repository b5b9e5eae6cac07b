//! What all fuzzers have in common: a storage of their own in memory, below the directory that `DORM_FUZZ` names.

use std::path::PathBuf;

use dorm_storage::fuzzing::Fuzzed;

/// A storage in a directory that no other process has.
pub fn fuzzed() -> Fuzzed {
    let place = std::env::var_os("DORM_FUZZ").map_or_else(std::env::temp_dir, PathBuf::from);
    let home = place.join(format!("fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&home).expect("a directory");
    Fuzzed::new(&home)
}
