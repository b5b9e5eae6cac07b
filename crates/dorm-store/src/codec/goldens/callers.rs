//! API keys, and records with a caller: a sandbox, an operation and events.

use dorm_lifecycle::{ApiKeyId, Caller, Credential, ProjectId, Sandbox, SandboxId};

use super::{at, events, operations, sandboxes};
use crate::{ApiKeyRecord, KeyScope, NewEvent, OperationRecord};

pub(super) fn api_keys() -> Vec<(String, ApiKeyRecord)> {
    let full = ApiKeyRecord {
        id: ApiKeyId::from_random([13; 20]),
        project: ProjectId::local(),
        name: "laptop".to_owned(),
        scope: KeyScope::Full,
        hash: [9; 32],
        created: at(1_790_000_000_000),
        expires: None,
    };
    let reads = ApiKeyRecord {
        scope: KeyScope::ReadOnly,
        expires: Some(at(1_790_000_500_000)),
        name: String::new(),
        ..full.clone()
    };
    let one = ApiKeyRecord { scope: KeyScope::Sandbox(SandboxId::from_random([1; 20])), ..full.clone() };
    vec![("key".to_owned(), full), ("key-read-only".to_owned(), reads), ("key-of-a-sandbox".to_owned(), one)]
}

/// A caller with a key.
pub(super) fn key_caller() -> Caller {
    let credential = Credential::ApiKey { id: ApiKeyId::from_random([7; 20]), name: "ci".to_owned() };
    Caller { door: "api".parse().unwrap(), credential }
}

/// One caller for each kind of credential, with a name for it.
fn callers() -> Vec<(&'static str, Caller)> {
    let id = ApiKeyId::from_random([7; 20]);
    let credentials = [
        ("owner-socket", Credential::OwnerSocket),
        ("owner-key", Credential::OwnerKey),
        ("api-key", Credential::ApiKey { id: id.clone(), name: "ci of Bücher".to_owned() }),
        ("unnamed-api-key", Credential::ApiKey { id, name: String::new() }),
        ("port-token", Credential::PortToken),
        ("port-link", Credential::PortLink),
    ];
    let by = |(name, credential)| (name, Caller { door: "api".parse().unwrap(), credential });
    credentials.map(by).to_vec()
}

pub(super) fn key() -> Option<Caller> {
    callers().into_iter().find(|(name, _)| *name == "api-key").map(|(_, caller)| caller)
}

pub(super) fn events_with_callers() -> Vec<(String, NewEvent)> {
    let event = events().remove(0).1;
    let by = |(name, caller)| (format!("event-by-{name}"), NewEvent { caller: Some(caller), ..event.clone() });
    callers().into_iter().map(by).collect()
}

pub(super) fn operations_with_callers() -> Vec<(String, OperationRecord)> {
    vec![("operation-by-api-key".to_owned(), OperationRecord { caller: key(), ..operations().remove(0).1 })]
}

pub(super) fn sandboxes_with_callers() -> Vec<(String, Sandbox)> {
    vec![("sandbox-created-by-api-key".to_owned(), Sandbox { created_by: key(), ..sandboxes().remove(0).1 })]
}
