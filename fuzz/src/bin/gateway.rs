#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|head: &[u8]| dorm_http::fuzzing::request(head));
