//! The entry points of the fuzzers: DNS queries of a sandbox and replies of name servers. Not part
//! of any release build.

pub use crate::names::fuzzing::{answer, question};
