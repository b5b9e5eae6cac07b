//! Sandboxes as clients of E2B see them.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, header};
use dorm_lifecycle::{
    Attachment, Keep, Name, OnTimeout, PortAccess, Resources, State, StateName, Timestamp, VolumeId, Wake,
};
use dorm_service::{SandboxView, Service};

use super::wire::{Lifecycle, ListedSandbox, Sandbox, SandboxDetail, VolumeMount};
use super::{Permission, network};
use crate::door::{DOOR, E2b, ENVD_VERSION};
use crate::tokens;

/// The id of the client that created a sandbox, which E2B no longer uses.
const CLIENT: &str = "dormouse";
/// The annotation with the id of the template that the client named.
pub(crate) const TEMPLATE: &str = "template";
/// The annotation with the name of that template.
pub(crate) const ALIAS: &str = "alias";
/// The annotation of a sandbox whose `envd` needs no token.
pub(crate) const SECURE: &str = "secure";

/// The end of a sandbox without a deadline: clients expect a time.
const NEVER: &str = "9999-12-31T23:59:59.000Z";

/// An annotation of this door.
pub(crate) fn annotation<'a>(view: &'a SandboxView, key: &str) -> Option<&'a str> {
    view.sandbox.spec.annotations.0.get(DOOR.as_str())?.get(key).map(String::as_str)
}

/// The id and the name of the template of a sandbox. One that was not created here has the snapshot
/// or the image that it started from.
pub(crate) fn template_of(view: &SandboxView) -> (String, Option<String>) {
    let alias = annotation(view, ALIAS).map(str::to_owned);
    match (annotation(view, TEMPLATE), view.sandbox.origin.snapshot()) {
        (Some(template), _) => (template.to_owned(), alias),
        (None, Some(snapshot)) => (snapshot.to_string(), alias),
        (None, None) => (view.sandbox.spec.image.to_string(), alias),
    }
}

/// Whether `envd` of a sandbox needs its token.
pub(crate) fn is_secure(view: &SandboxView) -> bool {
    annotation(view, SECURE) != Some("false")
}

/// The domain below which a client finds the ports of a sandbox: that of the host that it has
/// named, or else the first that this server answers to; with the port of the request.
pub(crate) fn domain(door: &E2b, headers: &HeaderMap) -> Option<String> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let domains = &door.access.domains;
    // The last one is the operator's, if there is one: the first is always localhost.
    let domain = domains.of(host).or_else(|| domains.names().last().map(String::as_str))?;
    Some(match dorm_http::split_port(host) {
        (_, Some(port)) => format!("{domain}:{port}"),
        (_, None) => domain.to_owned(),
    })
}

/// The answer to create, connect, resume and fork.
pub(crate) fn sandbox(service: &Service, view: &SandboxView, domain: Option<String>) -> Sandbox {
    let (template_id, alias) = template_of(view);
    let id = &view.sandbox.id;
    Sandbox {
        template_id,
        sandbox_id: id.to_string(),
        client_id: CLIENT,
        envd_version: ENVD_VERSION,
        alias,
        envd_access_token: is_secure(view).then(|| tokens::envd(service, id)),
        traffic_access_token: (view.sandbox.spec.port_access == PortAccess::Private)
            .then(|| tokens::traffic(service, id)),
        domain,
    }
}

/// The entry of a list.
pub(crate) fn listed(view: &SandboxView, names: &BTreeMap<VolumeId, Name>) -> ListedSandbox {
    let (template_id, alias) = template_of(view);
    let sandbox = &view.sandbox;
    let Resources { cpu_millis, memory_bytes, disk_bytes, .. } = sandbox.spec.resources;
    let mount = |attachment: &Attachment| {
        let Attachment { volume, path, .. } = attachment;
        let name = names.get(volume).map_or_else(|| volume.to_string(), Name::to_string);
        VolumeMount { name, path: path.to_string() }
    };
    ListedSandbox {
        template_id,
        sandbox_id: sandbox.id.to_string(),
        client_id: CLIENT,
        alias,
        started_at: time(sandbox.started.unwrap_or(sandbox.created)),
        end_at: end(view),
        envd_version: ENVD_VERSION,
        cpu_count: cpus(cpu_millis),
        memory_mb: memory_bytes >> 20,
        disk_size_mb: disk_bytes >> 20,
        state: state(view.sandbox.state.name()),
        metadata: sandbox.spec.labels.clone(),
        volume_mounts: sandbox.attachments().map(mount).collect(),
    }
}

/// Everything about a sandbox; its token only for a key that may change it.
pub(crate) async fn detail(
    service: &Service,
    view: &SandboxView,
    permission: Permission,
    domain: Option<String>,
) -> SandboxDetail {
    let spec = &view.sandbox.spec;
    let pause_mode = match &view.sandbox.state {
        State::Suspended { image, .. } => Some(match image.keeps() {
            Keep::Memory => "full",
            Keep::Files => "filesystem",
        }),
        _ => None,
    };
    let names = service.names_of_volumes(std::slice::from_ref(view)).await;
    SandboxDetail {
        listed: listed(view, &names),
        envd_access_token: (permission == Permission::Change && is_secure(view))
            .then(|| tokens::envd(service, &view.sandbox.id)),
        allow_internet_access: network::reaches_internet(&spec.egress),
        domain,
        network: network::shown(spec),
        lifecycle: Lifecycle {
            auto_resume: spec.wake == Wake::Any,
            on_timeout: match spec.on_timeout {
                OnTimeout::Terminate => "kill",
                OnTimeout::Suspend | OnTimeout::SuspendFiles => "pause",
            },
        },
        pause_mode,
    }
}

/// The state of a sandbox: clients know two.
pub(crate) fn state(name: StateName) -> &'static str {
    match name {
        StateName::Pending | StateName::Running | StateName::Snapshotting | StateName::Resuming => "running",
        StateName::Suspending | StateName::Suspended | StateName::Terminating | StateName::Terminated => "paused",
    }
}

/// Whether clients see a sandbox in this state.
pub(crate) fn is_there(name: StateName) -> bool {
    !matches!(name, StateName::Terminating | StateName::Terminated)
}

/// The deadline of a running sandbox, or the moment at which it was paused.
fn end(view: &SandboxView) -> String {
    match (&view.sandbox.state, view.expires) {
        (State::Suspended { image, .. }, _) => time(image.taken),
        (_, Some(expires)) => time(expires),
        (_, None) => NEVER.to_owned(),
    }
}

/// The number of CPUs that a limit needs.
pub(crate) fn cpus(millis: u32) -> u32 {
    millis.div_ceil(1000).max(1)
}

/// A time on the wire.
pub(crate) fn time(at: Timestamp) -> String {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).map_or_else(|_| NEVER.to_owned(), |at| format!("{at:.3}"))
}

/// The annotations of a sandbox that is created here.
pub(crate) fn annotations(template: &str, alias: Option<&str>, is_secure: bool) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::from([(TEMPLATE.to_owned(), template.to_owned())]);
    entries.extend(alias.map(|alias| (ALIAS.to_owned(), alias.to_owned())));
    entries.extend((!is_secure).then(|| (SECURE.to_owned(), "false".to_owned())));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc_with_milliseconds() {
        assert_eq!(time(Timestamp::from_millis(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert_eq!(time(Timestamp::from_millis(1_700_000_000_000)), "2023-11-14T22:13:20.000Z");
        assert_eq!(time(Timestamp::from_millis(u64::MAX)), NEVER);
    }
}
