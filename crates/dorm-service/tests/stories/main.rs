//! Stories of sandboxes: the real service on the fake engine, a store in memory and a pool on disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod damage;
mod faults;
mod forks;
mod full_disk;
mod life;
mod restarts;
mod room;
mod snapshots;
mod timeouts;
mod world;
