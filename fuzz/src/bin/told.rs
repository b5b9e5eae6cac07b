#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| match data.split_first() {
    Some((0, said)) => dorm_memory_image::fuzzing::told(said),
    Some((_, said)) => dorm_storage::fuzzing::told(said),
    None => {}
});
