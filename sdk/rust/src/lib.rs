#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod client;
mod command;
mod create;
mod dormouse;
mod ensure;
mod events;
mod files;
mod owner_socket;
mod port;
mod process;
mod progress;
mod sandbox;
mod terminal;

pub use client::{
    ByteStream, Chunk, Client, ClientError, CommandEvent, CommandEvents, Connection, Downloaded, Find, Grep, Order,
    PortResponse, Position, Retries, SandboxFilter, SortBy, Sse, SseEvent, Terminal, TerminalEvent, TerminalInput,
    TerminalOutput, Wanted,
};
pub use command::{CommandLine, Exec, Start};
pub use create::Create;
pub use dorm_api_types as types;
pub use dormouse::Dormouse;
pub use ensure::{Ensure, EnsureEvent, EnsureEvents, Ensured};
pub use events::EventStream;
pub use files::{Files, WatchStream};
pub use owner_socket::OwnerSocket;
pub use port::Port;
pub use process::{CommandStream, Output, Process};
pub use progress::Progress;
pub use reqwest::Method;
pub use sandbox::{Cloned, Rewound, Sandbox};
pub use terminal::OpenTerminal;
