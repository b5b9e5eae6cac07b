//! The messages of `process.Process`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::connect::json::{Base64, Number};

/// A message without fields.
#[derive(Deserialize, Serialize, Default)]
pub(super) struct Empty {}

#[derive(Deserialize, Default, Debug)]
pub(super) struct Selector {
    pub(super) pid: Option<Number>,
    pub(super) tag: Option<String>,
}

#[derive(Deserialize, Serialize, Default)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) cmd: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) args: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) envs: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cwd: Option<String>,
}

impl Config {
    /// The number of bytes that it takes, nearly.
    pub(super) fn bytes(&self) -> u64 {
        let variables = self.envs.iter().flatten().flat_map(|(name, value)| [name, value]);
        let texts = self.args.iter().flatten().chain(&self.cwd).chain(variables).chain([&self.cmd]);
        texts.map(|text| (size_of::<String>() + text.len()) as u64).sum()
    }
}

#[derive(Deserialize, Default)]
pub(super) struct Size {
    pub(super) cols: Option<Number>,
    pub(super) rows: Option<Number>,
}

#[derive(Deserialize, Default)]
pub(super) struct Pty {
    pub(super) size: Option<Size>,
}

#[derive(Deserialize)]
pub(super) struct StartRequest {
    pub(super) process: Option<Config>,
    pub(super) pty: Option<Pty>,
    pub(super) tag: Option<String>,
    pub(super) stdin: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct ConnectRequest {
    pub(super) process: Option<Selector>,
}

#[derive(Deserialize)]
pub(super) struct UpdateRequest {
    pub(super) process: Option<Selector>,
    pub(super) pty: Option<Pty>,
}

#[derive(Deserialize, Default)]
pub(super) struct Input {
    pub(super) stdin: Option<Base64>,
    pub(super) pty: Option<Base64>,
}

#[derive(Deserialize)]
pub(super) struct SendInputRequest {
    pub(super) process: Option<Selector>,
    pub(super) input: Option<Input>,
}

#[derive(Deserialize)]
pub(super) struct StreamInputRequest {
    pub(super) start: Option<ConnectRequest>,
    pub(super) data: Option<StreamData>,
    pub(super) keepalive: Option<Empty>,
}

#[derive(Deserialize)]
pub(super) struct StreamData {
    pub(super) input: Option<Input>,
}

#[derive(Deserialize)]
pub(super) struct SendSignalRequest {
    pub(super) process: Option<Selector>,
    pub(super) signal: Option<SignalName>,
}

/// A signal, by name or by number.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum SignalName {
    Name(String),
    Number(i32),
}

#[derive(Deserialize)]
pub(super) struct CloseStdinRequest {
    pub(super) process: Option<Selector>,
}

#[derive(Serialize)]
pub(super) struct ProcessInfo {
    pub(super) config: Config,
    pub(super) pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tag: Option<String>,
}

#[derive(Serialize)]
pub(super) struct ListResponse {
    pub(super) processes: Vec<ProcessInfo>,
}
