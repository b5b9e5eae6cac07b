//! The JSON of templates and builds, as E2B's clients send and expect it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use super::super::show::time;

/// A request for a build.
#[derive(Deserialize)]
pub(super) struct BuildRequest {
    pub(super) name: Option<String>,
    /// The field of earlier releases.
    pub(super) alias: Option<String>,
    pub(super) tags: Option<Vec<String>>,
    #[serde(rename = "cpuCount")]
    pub(super) cpu_count: Option<i64>,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mb: Option<i64>,
    #[serde(rename = "minFreeDiskMb")]
    pub(super) min_free_disk_mb: Option<i64>,
}

/// The answer to a request for a build.
#[derive(Serialize)]
pub(super) struct BuildRequested {
    #[serde(rename = "templateID")]
    pub(super) template_id: String,
    #[serde(rename = "buildID")]
    pub(super) build_id: String,
    pub(super) public: bool,
    pub(super) names: Vec<String>,
    pub(super) tags: Vec<String>,
    pub(super) aliases: Vec<String>,
}

/// The address for the files of a step.
#[derive(Serialize)]
pub(super) struct FileSlot {
    pub(super) present: bool,
    pub(super) url: String,
    pub(super) headers: BTreeMap<String, String>,
}

/// The steps of a build.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BuildStart {
    pub(super) from_image: Option<String>,
    pub(super) from_template: Option<String>,
    pub(super) from_image_registry: Option<ImageRegistry>,
    pub(super) force: Option<bool>,
    pub(super) steps: Option<Vec<StepRequest>>,
    pub(super) start_cmd: Option<String>,
    pub(super) ready_cmd: Option<String>,
}

/// The login for the registry of a base image.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum ImageRegistry {
    Registry {
        username: String,
        password: String,
    },
    Aws {},
    #[serde(rename_all = "camelCase")]
    Gcp {
        service_account_json: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StepRequest {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) args: Option<Vec<String>>,
    pub(super) files_hash: Option<String>,
    pub(super) force: Option<bool>,
}

/// The state of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BuildStatus {
    Waiting,
    Building,
    Ready,
    Error,
}

#[derive(Serialize)]
pub(super) struct BuildInfo {
    #[serde(rename = "templateID")]
    pub(super) template_id: String,
    #[serde(rename = "buildID")]
    pub(super) build_id: String,
    pub(super) status: BuildStatus,
    /// Always empty: clients read `logEntries`.
    pub(super) logs: Vec<String>,
    #[serde(rename = "logEntries")]
    pub(super) log_entries: Vec<LogEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Reason>,
}

/// Why a build has failed.
#[derive(Serialize)]
pub(super) struct Reason {
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
}

#[derive(Serialize)]
pub(super) struct LogEntry {
    pub(super) timestamp: String,
    pub(super) message: String,
    pub(super) level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Template {
    #[serde(rename = "templateID")]
    pub(super) template_id: String,
    #[serde(rename = "buildID")]
    pub(super) build_id: String,
    pub(super) cpu_count: u32,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    pub(super) disk_size_mb: u64,
    pub(super) public: bool,
    pub(super) aliases: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    pub(super) created_by: Option<()>,
    pub(super) last_spawned_at: Option<String>,
    pub(super) spawn_count: u64,
    pub(super) build_count: usize,
    pub(super) envd_version: &'static str,
    pub(super) build_status: BuildStatus,
    pub(super) is_default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) builds: Option<Vec<TemplateBuild>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateBuild {
    #[serde(rename = "buildID")]
    pub(super) build_id: String,
    pub(super) status: BuildStatus,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finished_at: Option<String>,
    pub(super) cpu_count: u32,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    pub(super) disk_size_mb: u64,
    pub(super) envd_version: &'static str,
}

/// A change of the public flag.
#[derive(Deserialize)]
pub(super) struct Publication {
    pub(super) public: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct TagsToAssign {
    pub(super) target: String,
    pub(super) tags: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct TagsToRemove {
    pub(super) name: String,
    pub(super) tags: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tag {
    pub(super) tag: String,
    #[serde(rename = "buildID")]
    pub(super) build_id: String,
    pub(super) created_at: String,
}
