//! The agent: the first process of every sandbox, which executes the host's requests.
//!
//! It communicates over its own standard input and output (`dorm-agent-proto`), so that no other
//! process holds a descriptor of the host. One thread reads requests and passes them to workers;
//! one moves the bytes of all processes, and one those of connections to ports; one sends output to
//! its readers; one reaps children; and each service has one that starts it again. It only uses
//! blocking threads and poll(2): nothing created before a checkpoint may matter after it.
//!
//! It does not know the sandbox's name, when it is suspended, or its callers.
//!
//! ```text
//! stdin ──► session ──► workers ──► files, users, measures, dial …
//!              │           │            │           │
//!              │       processes        │      connections
//!              │           │            │           │
//!              └── pump ──► courier ────┴───────────┴──► link ──► stdout
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod agent;
mod call;
mod calls;
mod channel;
mod connections;
mod courier;
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
mod places;
mod process;
mod random;
mod services;
mod session;
mod tmp;
mod users;
mod workers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crate::agent::Agent;

/// Freed memory is cleared: it has had variables and contents of files, and is saved in snapshots.
#[global_allocator]
static ALLOCATOR: zeroizing_alloc::ZeroAlloc<std::alloc::System> = zeroizing_alloc::ZeroAlloc(std::alloc::System);

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
    // An agent that is not the first process runs in a test, and must not change its host.
    if rustix::process::getpid().is_init()
        && let Err(error) = tmp::move_to_disk(Path::new("/tmp"))
    {
        eprintln!("dorm-agent cannot move /tmp to the disk, so it stays in memory: {error}");
    }
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

/// Returns the root of `/run/dormouse` and `/etc/dormouse`: `/`, except in tests.
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
