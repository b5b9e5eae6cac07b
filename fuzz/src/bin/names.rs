#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    dorm_oci::fuzzing::reference(text);
    dorm_oci::fuzzing::challenge(text);
});
