//! The JSON of the control API, as E2B's clients send and expect it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A sandbox to create.
#[derive(Deserialize)]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    pub(crate) timeout: Option<i64>,
    #[serde(default, rename = "autoPause")]
    pub(crate) auto_pause: Option<bool>,
    #[serde(default, rename = "autoPauseMemory")]
    pub(crate) auto_pause_memory: Option<bool>,
    #[serde(default, rename = "autoResume")]
    pub(crate) auto_resume: Option<AutoResume>,
    /// Only in the first version of the API.
    pub(crate) secure: Option<bool>,
    pub(crate) allow_internet_access: Option<bool>,
    pub(crate) network: Option<Network>,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envVars")]
    pub(crate) env_vars: Option<BTreeMap<String, String>>,
    /// Only names the template: the client starts the gateway itself.
    #[serde(rename = "mcp")]
    pub(crate) _mcp: Option<Value>,
    pub(crate) iam: Option<Value>,
    #[serde(rename = "volumeMounts")]
    pub(crate) volume_mounts: Option<Vec<VolumeMount>>,
}

#[derive(Deserialize)]
pub(crate) struct AutoResume {
    pub(crate) enabled: bool,
}

#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct VolumeMount {
    pub(crate) name: String,
    pub(crate) path: String,
}

/// The network of a sandbox: its egress, and access to its ports.
#[derive(Clone, Default, PartialEq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Network {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_public_traffic: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow_out: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deny_out: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dns_servers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) egress_proxy: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mask_request_host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) https_ports: Option<Vec<u16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rules: Option<BTreeMap<String, Vec<NetworkRule>>>,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub(crate) struct NetworkRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transform: Option<Transform>,
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
pub(crate) struct Transform {
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
}

/// A change of the egress: what it does not name is cleared.
#[derive(Deserialize)]
pub(crate) struct NetworkChange {
    pub(crate) allow_internet_access: Option<bool>,
    #[serde(flatten)]
    pub(crate) network: Network,
}

/// The answer to create, connect, resume and fork.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    #[serde(rename = "sandboxID")]
    pub(crate) sandbox_id: String,
    #[serde(rename = "clientID")]
    pub(crate) client_id: &'static str,
    pub(crate) envd_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alias: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) envd_access_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traffic_access_token: Option<String>,
    pub(crate) domain: Option<String>,
}

/// A sandbox in a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedSandbox {
    #[serde(rename = "templateID")]
    pub(crate) template_id: String,
    #[serde(rename = "sandboxID")]
    pub(crate) sandbox_id: String,
    #[serde(rename = "clientID")]
    pub(crate) client_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) alias: Option<String>,
    pub(crate) started_at: String,
    pub(crate) end_at: String,
    pub(crate) envd_version: &'static str,
    pub(crate) cpu_count: u32,
    #[serde(rename = "memoryMB")]
    pub(crate) memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    pub(crate) disk_size_mb: u64,
    pub(crate) state: &'static str,
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) volume_mounts: Vec<VolumeMount>,
}

/// A sandbox that is looked at by itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxDetail {
    #[serde(flatten)]
    pub(crate) listed: ListedSandbox,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) envd_access_token: Option<String>,
    pub(crate) allow_internet_access: bool,
    pub(crate) domain: Option<String>,
    pub(crate) network: Network,
    pub(crate) lifecycle: Lifecycle,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pause_mode: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lifecycle {
    pub(crate) auto_resume: bool,
    pub(crate) on_timeout: &'static str,
}

/// A snapshot.
#[derive(Serialize)]
pub(crate) struct Snapshot {
    #[serde(rename = "snapshotID")]
    pub(crate) snapshot_id: String,
    pub(crate) names: Vec<String>,
}

/// One sample of the usage of a sandbox.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    pub(crate) timestamp: String,
    pub(crate) timestamp_unix: u64,
    pub(crate) cpu_count: u32,
    pub(crate) cpu_used_pct: f64,
    pub(crate) mem_used: u64,
    pub(crate) mem_total: u64,
    pub(crate) mem_cache: u64,
    pub(crate) disk_used: u64,
    pub(crate) disk_total: u64,
}

/// A line of a log.
#[derive(Serialize)]
pub(crate) struct LogEntry {
    pub(crate) timestamp: String,
    pub(crate) message: String,
    pub(crate) level: &'static str,
    pub(crate) fields: BTreeMap<&'static str, String>,
}
