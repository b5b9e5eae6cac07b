//! The stored inputs of the fuzzers, in `fuzz/seeds`; tests write them again if `DORM_UPDATE` is
//! set.

use std::fs;
use std::path::PathBuf;

use super::Fuzzed;

fn directory(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
}

/// Writes one input if `DORM_UPDATE` is set.
pub(crate) fn seed(target: &str, name: &str, data: &[u8]) {
    if std::env::var_os("DORM_UPDATE").is_some() {
        fs::create_dir_all(directory(target)).unwrap();
        fs::write(directory(target).join(name), data).unwrap();
    }
}

/// Checks that every stored input passes. As in a fuzzer there is no runtime, whose other threads
/// would remove dropped objects.
pub(crate) fn pass_all(target: &str, passes: impl Fn(&Fuzzed, &[u8]) + Send) {
    std::thread::scope(|scope| scope.spawn(|| all_pass(target, passes)).join()).unwrap();
}

fn all_pass(target: &str, passes: impl Fn(&Fuzzed, &[u8])) {
    let home = tempfile::tempdir().unwrap();
    let fuzzed = Fuzzed::new(home.path());
    let mut count = 0;
    for entry in fs::read_dir(directory(target)).unwrap() {
        passes(&fuzzed, &fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "there are no inputs for {target}");
}
