//! Formats values for people.

use std::collections::BTreeMap;
use std::time::Duration;

use dorm_api_types as wire;
use dorm_api_types::Time;
use dorm_lifecycle::ByteSize;
use jiff::Timestamp;
use serde::Serialize;

/// Formats a size, such as `512 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// Formats thousandths of CPUs, such as `1` or `0.5`.
pub(crate) fn cpus(millis: u32) -> String {
    format!("{}", f64::from(millis) / 1000.0)
}

/// Formats a duration by its two largest units, such as `3m 20s`.
pub(crate) fn length(seconds: f64) -> String {
    if seconds > 0.0 && seconds < 10.0 && seconds.fract() > 0.0005 {
        let text = format!("{seconds:.3}");
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let whole = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX).as_secs();
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => parts(whole / 60, "m", whole % 60, "s"),
        3600..86_400 => parts(whole / 3600, "h", whole % 3600 / 60, "m"),
        _ => parts(whole / 86_400, "d", whole % 86_400 / 3600, "h"),
    }
}

fn parts(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit} {small}{small_unit}") }
}

/// Formats how long ago a time was.
pub(crate) fn age(time: Time, now: Timestamp) -> String {
    length(now.duration_since(time.0).as_secs_f64().max(0.0).trunc())
}

/// Formats how far ahead a time is.
pub(crate) fn ahead(time: Option<Time>, now: Timestamp) -> String {
    time.map_or_else(none, |time| length(time.0.duration_since(now).as_secs_f64().max(0.0).trunc()))
}

/// Formats a time, to the second.
pub(crate) fn moment(time: Time) -> String {
    let seconds = Timestamp::from_second(time.0.as_second()).unwrap_or(time.0);
    seconds.to_string()
}

/// Returns the placeholder for a missing value.
pub(crate) fn none() -> String {
    "-".to_owned()
}

/// Returns the name that a value has on the wire.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => none(),
    }
}

/// Formats who caused a change, such as `user (key ci)`.
pub(crate) fn by(initiator: &str, caller: Option<&wire::Caller>) -> String {
    let Some(caller) = caller else { return initiator.to_owned() };
    let credential = match caller.credential {
        wire::Credential::OwnerSocket => "owner".to_owned(),
        wire::Credential::OwnerKey => "owner's key".to_owned(),
        wire::Credential::ApiKey => {
            let name = caller.key_name.as_ref().filter(|name| !name.is_empty());
            format!("key {}", name.or(caller.key.as_ref()).map_or("?", String::as_str))
        }
        wire::Credential::PortToken => "port token".to_owned(),
        wire::Credential::PortLink => "port link".to_owned(),
    };
    format!("{initiator} ({credential})")
}

/// Formats a caller with everything that is known of it.
pub(crate) fn caller(caller: Option<&wire::Caller>) -> String {
    let Some(wire::Caller { door, credential, key, key_name }) = caller else { return none() };
    let credential = match (credential, key, key_name.as_deref()) {
        (wire::Credential::ApiKey, Some(key), None | Some("")) => format!("API key {key}"),
        (wire::Credential::ApiKey, Some(key), Some(name)) => format!("API key {key} ({name})"),
        (wire::Credential::ApiKey, None, _) => "API key".to_owned(),
        (wire::Credential::OwnerSocket, ..) => "owner's socket".to_owned(),
        (wire::Credential::OwnerKey, ..) => "owner's key".to_owned(),
        (wire::Credential::PortToken, ..) => "port token".to_owned(),
        (wire::Credential::PortLink, ..) => "port link".to_owned(),
    };
    format!("{credential}, listener {door}")
}

/// Formats a sandbox's state, with what the state alone does not say: the cause of its end, where
/// its memory is, or that it is unreachable.
pub(crate) fn state(sandbox: &wire::Sandbox) -> String {
    let state = word(&sandbox.state);
    match (&sandbox.cause, sandbox.residence) {
        (Some(cause), _) => format!("{state} ({})", word(&cause.kind)),
        (None, wire::Residence::Parked | wire::Residence::Evicted) => format!("{state} ({})", word(&sandbox.residence)),
        (None, wire::Residence::Running | wire::Residence::None) if sandbox.unreachable.is_some() => {
            format!("{state} (unreachable)")
        }
        (None, wire::Residence::Running | wire::Residence::None) => state,
    }
}

/// Returns a header rule as it is written.
pub(crate) fn header(rule: &wire::HeaderRule) -> String {
    let wire::HeaderRule { host, port, name, value } = rule;
    match *port {
        443 => format!("{host}: {name}: {value}"),
        port => format!("{host}:{port}: {name}: {value}"),
    }
}

/// Formats the access to ports, with the exceptions and the host for programs.
pub(crate) fn ports(access: wire::PortAccess, host: Option<&str>, rules: &BTreeMap<u16, wire::PortRule>) -> String {
    let mut parts = vec![word(&access)];
    parts.extend(host.map(|host| format!("as {host}")));
    for (port, rule) in rules {
        let access = rule.access.map(|access| word(&access));
        let host = rule.host.as_ref().map(|host| format!("as {host}"));
        let rule: Vec<String> = access.into_iter().chain(host).collect();
        parts.push(format!("{port} {}", rule.join(" ")));
    }
    parts.join(", ")
}

/// Returns the header rules of a policy.
pub(crate) fn headers(egress: &wire::Egress) -> Vec<String> {
    match egress {
        wire::Egress::Ordered(wire::EgressRules { headers, .. }) => headers.iter().map(header).collect(),
        wire::Egress::Public | wire::Egress::None | wire::Egress::Closed | wire::Egress::Allow(_) => Vec::new(),
    }
}

/// Formats where a sandbox may connect to.
pub(crate) fn egress(egress: &wire::Egress) -> String {
    match egress {
        wire::Egress::Public => "public".to_owned(),
        wire::Egress::None => "none".to_owned(),
        wire::Egress::Closed => "closed".to_owned(),
        wire::Egress::Allow(networks) => networks.join(","),
        wire::Egress::Ordered(wire::EgressRules { rules, default: wire::EgressDefault::Public, .. })
            if rules.is_empty() =>
        {
            "public".to_owned()
        }
        wire::Egress::Ordered(wire::EgressRules { rules, default, .. }) => {
            let rules = rules.iter().map(|rule| match rule {
                wire::EgressRule::Allow(to) => format!("allow:{to}"),
                wire::EgressRule::Deny(to) => format!("deny:{to}"),
            });
            let default = match default {
                wire::EgressDefault::Deny => "default:deny",
                wire::EgressDefault::Public => "default:public",
            };
            rules.chain([default.to_owned()]).collect::<Vec<_>>().join(",")
        }
    }
}

/// Returns the beginning of a digest, which is enough to identify it.
pub(crate) fn digest(digest: &str) -> String {
    digest.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_two_largest_parts() {
        for (seconds, text) in [
            (0.0, "0s"),
            (0.25, "0.25s"),
            (59.9, "59s"),
            (200.0, "3m 20s"),
            (3600.0, "1h"),
            (90_000.0, "1d 1h"),
            (-5.0, "0s"),
        ] {
            assert_eq!(length(seconds), text);
        }
    }

    #[test]
    fn a_caller_is_shown_by_its_key() {
        let of = |credential, key_name: &str| wire::Caller {
            door: "api".to_owned(),
            credential,
            key: (credential == wire::Credential::ApiKey).then(|| "abc".to_owned()),
            key_name: (credential == wire::Credential::ApiKey).then(|| key_name.to_owned()),
        };
        for (credential, name, short, long) in [
            (wire::Credential::ApiKey, "ci", "user (key ci)", "API key abc (ci), listener api"),
            (wire::Credential::ApiKey, "", "user (key abc)", "API key abc, listener api"),
            (wire::Credential::OwnerSocket, "", "user (owner)", "owner's socket, listener api"),
            (wire::Credential::OwnerKey, "", "user (owner's key)", "owner's key, listener api"),
        ] {
            let found = of(credential, name);
            assert_eq!((by("user", Some(&found)), caller(Some(&found))), (short.to_owned(), long.to_owned()));
        }
        assert_eq!((by("timer", None), caller(None)), ("timer".to_owned(), "-".to_owned()));
    }

    #[test]
    fn moments_are_shown_to_the_second() {
        assert_eq!(moment(Time::from_millis(1_795_339_800_125)), "2026-11-22T09:30:00Z");
    }
}
