//! The built program, called as users and scripts call it, against the real API on the fake engine
//! and a store in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod build;
mod checkpoint;
mod checkpoints;
mod config;
mod connection;
mod cp;
mod create;
mod describe;
mod diff;
mod doctor;
mod egress;
mod events;
mod exec;
mod generated;
mod help;
mod image;
mod inside;
mod key;
mod ls;
mod matrix;
mod operations;
mod pool;
mod port;
mod project;
mod ps;
mod retention;
mod rewind;
mod run;
mod secret;
mod shell;
mod sleep;
mod terminate;
mod timeout;
mod transfer;
mod tree;
mod update;
mod usage;
mod volumes;
mod why;
mod world;
