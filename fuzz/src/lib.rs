//! The common part of all fuzzers: a storage of their own below the directory in `DORM_FUZZ`, in
//! memory if possible.

use std::path::PathBuf;

use dorm_storage::fuzzing::Fuzzed;

/// A storage in a directory of this process.
pub fn fuzzed() -> Fuzzed {
    let place = std::env::var_os("DORM_FUZZ").map_or_else(std::env::temp_dir, PathBuf::from);
    let home = place.join(format!("fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&home).expect("a directory");
    Fuzzed::new(&home)
}
