#![no_main]

use std::sync::LazyLock;

use dorm_storage::fuzzing::Fuzzed;
use libfuzzer_sys::fuzz_target;

static FUZZED: LazyLock<Fuzzed> = LazyLock::new(dorm_fuzz::fuzzed);

fuzz_target!(|data: &[u8]| FUZZED.context(data));
