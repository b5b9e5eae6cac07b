#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

//! The door as its clients see it, over the fake engine.

mod access;
mod envd;
mod lists;
mod sandboxes;
mod snapshots;
mod world;
