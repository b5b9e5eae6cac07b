//! What fuzzers are let at: questions that a sandbox asks and answers that name servers give. Not built into anything
//! that is shipped.

pub use crate::names::fuzzing::{answer, question};
