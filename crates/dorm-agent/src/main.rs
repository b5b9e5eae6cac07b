//! The agent: the first process of every sandbox, and the host's hand inside it.
//!
//! It talks over its own standard input and output (`dorm-agent-proto`), so that no descriptor of the host is held by
//! any other process. One thread reads requests and hands them to workers; one moves the bytes of all processes; one
//! buries the dead. It is written with blocking threads and poll(2) only: nothing that was made before a checkpoint
//! may matter after it.
//!
//! It does not know what a sandbox is named, when it sleeps, or who calls.
//!
//! ```text
//! stdin ──► session ──► workers ──► files, users, measures, dial …
//!                          │            │
//!              processes ──┴── pump ────┴──► link ──► stdout
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod agent;
mod calls;
mod channel;
mod dial;
mod exchange;
mod fault;
mod files;
mod identity;
mod link;
mod listeners;
mod lock;
mod measure;
mod mounts;
mod process;
mod session;
mod users;
mod workers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::agent::Agent;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == exchange::ARGUMENT) {
        return match exchange::run(arguments.map(PathBuf::from)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let Some(root) = root_from(std::env::args().skip(1)) else {
        eprintln!("dorm-agent is the first process of a Dormouse sandbox. Usage: dorm-agent stdio");
        return ExitCode::from(2);
    };
    match Agent::new(root) {
        Ok(agent) => {
            session::run(&Arc::new(agent));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dorm-agent cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Where `/run/dormouse` and `/etc/dormouse` are looked for: `/`, but for tests.
fn root_from(mut arguments: impl Iterator<Item = String>) -> Option<PathBuf> {
    if arguments.next()? != "stdio" {
        return None;
    }
    match arguments.next().as_deref() {
        None => Some(PathBuf::from("/")),
        Some("--root") => arguments.next().map(PathBuf::from),
        Some(_) => None,
    }
}
