//! The native API over real sockets: the real service on the fake engine, a store in memory and
//! storage on disk.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod callers;
mod checkpoints;
mod conditions;
mod door;
mod events;
mod failures;
mod files;
mod gateway;
mod images;
mod keys;
mod lists;
mod operations;
mod pools;
mod ports;
mod processes;
mod projects;
mod pty;
mod refusals;
mod sandboxes;
mod schema;
mod services;
mod snapshots;
mod updates;
mod wake;
mod webhooks;
mod world;
