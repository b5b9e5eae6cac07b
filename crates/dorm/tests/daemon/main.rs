//! The real daemon with real sandboxes, from the user's point of view: over HTTP, and by the files
//! and processes on the host.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod browsers;
mod build;
mod builds;
mod confined;
mod deleted;
mod disks;
mod docs;
mod endurance;
mod environments;
mod forks;
mod guest_ids;
mod headers;
mod hostile;
mod https;
mod identity;
mod inside;
mod large;
mod limits;
mod local_users;
mod matrix;
mod network;
mod place;
mod prove;
mod records;
mod registry;
mod remote;
mod reseed;
mod restarts;
mod rewinds;
mod sdks;
mod secrets;
mod shared_images;
mod shutdown;
mod silent;
mod sleep;
mod soundness;
mod streams;
mod transfer;
mod unit;
mod upgrade;
mod volumes;
mod wake;
mod workers;
