//! The rows, in the newest version of each kind. They are a contract: a change here that breaks a
//! golden of a released version needs a new version.
//!
//! Every field is present, if only as `null`. Rows have no rules and no behaviour.

mod api_key;
mod attempt;
mod background;
mod build;
mod caller;
mod clock;
mod convert;
mod egress;
mod environment;
mod event;
mod operation;
mod pool;
mod ports;
mod project;
mod request;
mod sandbox;
mod snapshot;
mod state;
mod template;
mod volume;
mod webhook;

pub(super) use api_key::ApiKeyRow;
pub(super) use build::BuildRow;
pub(super) use clock::ClockRow;
pub(super) use environment::{EnvironmentRow, WorkspaceRow};
pub(super) use event::EventRow;
pub(super) use operation::OperationRow;
pub(super) use pool::PoolRow;
pub(super) use project::ProjectRow;
pub(super) use request::RequestRow;
pub(super) use sandbox::SandboxRow;
pub(super) use snapshot::SnapshotRow;
pub(super) use template::TemplateRow;
pub(super) use volume::VolumeRow;
pub(super) use webhook::WebhookRow;
