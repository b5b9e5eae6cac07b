//! The messages of `filesystem.Filesystem`.

use serde::{Deserialize, Serialize};

use super::super::connect::json::Number;
use super::entry::Entry;

/// A message without fields.
#[derive(Serialize)]
pub(super) struct Empty {}

#[derive(Deserialize)]
pub(super) struct PathRequest {
    pub(super) path: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct MoveRequest {
    pub(super) source: Option<String>,
    pub(super) destination: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ListRequest {
    pub(super) path: Option<String>,
    pub(super) depth: Option<Number>,
}

#[derive(Deserialize)]
pub(super) struct WatchRequest {
    pub(super) path: Option<String>,
    pub(super) recursive: Option<bool>,
    #[serde(rename = "includeEntry", alias = "include_entry")]
    pub(super) include_entry: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct WatcherRequest {
    #[serde(rename = "watcherId", alias = "watcher_id")]
    pub(super) watcher_id: Option<String>,
}

#[derive(Serialize)]
pub(super) struct EntryResponse {
    pub(super) entry: Entry,
}

#[derive(Serialize)]
pub(super) struct ListResponse {
    pub(super) entries: Vec<Entry>,
}

#[derive(Serialize)]
pub(super) struct WatcherResponse {
    #[serde(rename = "watcherId")]
    pub(super) watcher_id: String,
}

#[derive(Serialize)]
pub(super) struct EventsResponse {
    pub(super) events: Vec<Change>,
}

/// A change in a watched directory.
#[derive(Serialize)]
pub(super) struct Change {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<Entry>,
}
