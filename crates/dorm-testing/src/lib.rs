//! Real daemons for tests, proof, demo and bench: started as a user would, asked over HTTP, cleared away afterwards.
//!
//! It knows nothing of Dormouse's inside: what it cannot see over HTTP or on the host it does not see.

mod daemon;
mod host;

pub use daemon::{Answer, Daemon, until};
pub use host::{left_overs, processes_of};
