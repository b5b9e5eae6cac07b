//! Scenarios of sandboxes: the real service on the fake engine, a store in memory and storage on
//! disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod background;
mod checkpoints;
mod clocks;
mod conflicts;
mod damage;
mod data_disk;
mod egress;
mod failures;
mod faults;
mod first_programs;
mod forks;
mod full_disk;
mod idempotency;
mod images;
mod layers;
mod life;
mod operations;
mod pools;
mod quarantine;
mod references;
mod restarts;
mod rewinds;
mod room;
mod snapshots;
mod soundness;
mod stopping;
mod suspend_failures;
mod timeouts;
mod transfer;
mod unknown;
mod unreachable;
mod volumes;
mod world;
