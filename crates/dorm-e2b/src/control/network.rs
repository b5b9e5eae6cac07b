//! The network settings of E2B, as the egress policy and the access to ports of a sandbox.

use dorm_lifecycle::{
    Egress, EgressDefault, EgressError, EgressRule, EgressRules, EgressTarget, HTTPS_PORT, HeaderRule, PortAccess,
    PortHost, ProjectId, SandboxSpec, SpecError, Verdict,
};

use super::wire::Network;
use crate::error::Refusal;

/// The text of E2B that stands for every address.
const ALL: &str = "0.0.0.0/0";
/// The text of E2B that stands for the number of the port in a host.
const PORT: &str = "${PORT}";
/// The same in a [`PortHost`].
const OWN_PORT: &str = "{port}";

/// Refuses by name what this server does not have.
pub(crate) fn refuse_unsupported(network: &Network) -> Result<(), Refusal> {
    let refused = [
        ("network.dnsServers", network.dns_servers.as_ref().is_some_and(|servers| !servers.is_empty())),
        ("network.egressProxy", network.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null())),
        ("network.httpsPorts", network.https_ports.as_ref().is_some_and(|ports| !ports.is_empty())),
    ];
    match refused.iter().find(|(_, is_asked)| *is_asked) {
        Some((what, _)) => Err(Refusal::invalid(format!("{what} is not supported here; see docs/e2b.md"))),
        None => Ok(()),
    }
}

/// The egress policy for the lists of a network.
pub(crate) fn egress(network: &Network, internet: Option<bool>, project: &ProjectId) -> Result<Egress, Refusal> {
    let empty = Vec::new();
    let allow = network.allow_out.as_ref().unwrap_or(&empty);
    let deny = network.deny_out.as_ref().unwrap_or(&empty);
    let denies_all = deny.iter().any(|entry| entry == ALL);
    if let Some(name) = allow.iter().find(|entry| is_name(entry))
        && !denies_all
    {
        let message = format!(
            "network.allowOut has the domain '{name}', so network.denyOut must have {ALL}: otherwise everything is \
             allowed anyway"
        );
        return Err(Refusal::invalid(message));
    }
    if let Some(name) = deny.iter().find(|entry| is_name(entry)) {
        return Err(Refusal::invalid(format!("network.denyOut has '{name}': it takes addresses and networks only")));
    }
    let headers = headers(network, project)?;
    let is_closed = denies_all || internet == Some(false);
    if allow.is_empty() && deny.is_empty() && headers.is_empty() && !is_closed {
        return Ok(Egress::Public);
    }
    let rule = |verdict, to: &String| EgressRule { verdict, to: to.clone() };
    let mut rules = EgressRules {
        rules: Vec::new(),
        default: if is_closed { EgressDefault::Deny } else { EgressDefault::Public },
        headers: Vec::new(),
    };
    let allowed = allow.iter().map(|to| rule(Verdict::Allow, to));
    let denied = deny.iter().filter(|to| *to != ALL && !is_closed).map(|to| rule(Verdict::Deny, to));
    for rule in allowed.chain(denied) {
        rules.rules.push(rule);
        match Egress::Rules(rules.clone()).check() {
            Ok(()) => {}
            // Lists may repeat themselves; the rules of a policy may not.
            Err(EgressError::NeverMatches { .. }) => drop(rules.rules.pop()),
            Err(error) => return Err(Refusal::invalid(format!("network: {error}"))),
        }
    }
    let egress = Egress::Rules(EgressRules { headers, ..rules });
    egress.check().map_err(|error| Refusal::invalid(format!("network: {error}")))?;
    Ok(egress)
}

/// The header rules. A value names a secret of the project in braces; it is not stored with the
/// sandbox.
fn headers(network: &Network, project: &ProjectId) -> Result<Vec<HeaderRule>, Refusal> {
    let mut headers = Vec::new();
    for (host, rules) in network.rules.iter().flatten() {
        for transform in rules.iter().filter_map(|rule| rule.transform.as_ref()) {
            for (name, value) in &transform.headers {
                if !value.contains('{') {
                    let message = format!(
                        "network.rules: the header '{name}' for {host} has a value of its own, which would be \
                         recorded: store it with `dorm secret set NAME`, and give its name in braces, such as \
                         'Bearer {{NAME}}'"
                    );
                    return Err(Refusal::invalid(message));
                }
                let (host, name, value) = (host.clone(), name.clone(), value.clone());
                headers.push(HeaderRule { host, port: HTTPS_PORT, name, value, project: project.clone() });
            }
        }
    }
    Ok(headers)
}

/// Whether an entry of a list is a name and not an address.
fn is_name(entry: &str) -> bool {
    matches!(entry.parse(), Ok(EgressTarget::Host(_)))
}

/// Who may reach the ports of a sandbox.
pub(crate) fn access(network: &Network) -> Option<PortAccess> {
    network.allow_public_traffic.map(|public| if public { PortAccess::Public } else { PortAccess::Private })
}

/// The host that programs inside get.
pub(crate) fn host(network: &Network) -> Result<Option<PortHost>, Refusal> {
    let host = network.mask_request_host.as_ref().filter(|host| !host.is_empty());
    let parsed = host.map(|host| host.replace(PORT, OWN_PORT).parse()).transpose();
    parsed.map_err(|error: SpecError| Refusal::invalid(format!("network.maskRequestHost: {error}")))
}

/// The network of a sandbox, as its clients gave it or could have given it. Header rules are not
/// shown.
pub(crate) fn shown(spec: &SandboxSpec) -> Network {
    let (allow, deny) = match &spec.egress {
        Egress::Public => (Vec::new(), Vec::new()),
        Egress::None => (Vec::new(), vec![ALL.to_owned()]),
        Egress::Allow(allowed) => (allowed.clone(), vec![ALL.to_owned()]),
        Egress::Rules(rules) => {
            let all =
                |verdict| rules.rules.iter().filter(move |rule| rule.verdict == verdict).map(|rule| rule.to.clone());
            let closed = (rules.default == EgressDefault::Deny).then(|| ALL.to_owned());
            (all(Verdict::Allow).collect(), closed.into_iter().chain(all(Verdict::Deny)).collect())
        }
    };
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    Network {
        allow_public_traffic: Some(spec.port_access == PortAccess::Public),
        allow_out: some(allow),
        deny_out: some(deny),
        mask_request_host: spec.port_host.as_ref().map(|host| host.as_str().replace(OWN_PORT, PORT)),
        ..Network::default()
    }
}

/// Whether a policy permits connections that no list names.
pub(crate) fn reaches_internet(egress: &Egress) -> bool {
    match egress {
        Egress::Public => true,
        Egress::None | Egress::Allow(_) => false,
        Egress::Rules(rules) => rules.default == EgressDefault::Public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allow: &[&str], deny: &[&str], internet: Option<bool>) -> Result<Egress, Refusal> {
        let all = |list: &[&str]| Some(list.iter().map(|entry| (*entry).to_owned()).collect());
        let network = Network { allow_out: all(allow), deny_out: all(deny), ..Network::default() };
        egress(&network, internet, &ProjectId::local())
    }

    fn shown(egress: Result<Egress, Refusal>) -> String {
        match egress {
            Ok(Egress::Rules(rules)) => {
                let words: Vec<_> = rules.rules.iter().map(EgressRule::to_string).collect();
                format!("{} / {:?}", words.join(", "), rules.default)
            }
            Ok(other) => format!("{other:?}"),
            Err(refusal) => format!("refused: {}", refusal.message()),
        }
    }

    #[test]
    fn a_network_is_shown_as_its_client_gave_it() {
        let given: Network = serde_json::from_value(serde_json::json!({
            "allowPublicTraffic": false,
            "allowOut": ["api.example.com", "10.1.0.0/16"],
            "denyOut": [ALL],
            "maskRequestHost": "${PORT}-app.example.com",
        }))
        .unwrap();
        let digest: dorm_lifecycle::Digest = "0".repeat(64).parse().unwrap();
        let mut spec = SandboxSpec::new(digest, None);
        assert_eq!(super::shown(&spec), Network { allow_public_traffic: Some(true), ..Network::default() });
        spec.egress = egress(&given, None, &ProjectId::local()).unwrap();
        spec.port_access = access(&given).unwrap();
        spec.port_host = host(&given).unwrap();
        assert_eq!(super::shown(&spec), given);
        spec.egress = Egress::None;
        assert_eq!(super::shown(&spec).deny_out, Some(vec![ALL.to_owned()]));
    }

    #[test]
    fn what_is_allowed_goes_before_what_is_denied() {
        assert_eq!(shown(lists(&[], &[], None)), "Public");
        assert_eq!(shown(lists(&[], &[], Some(false))), " / Deny");
        assert_eq!(shown(lists(&[], &[ALL], None)), " / Deny");
        assert_eq!(shown(lists(&["1.1.1.1"], &[ALL], None)), "allow 1.1.1.1 / Deny");
        assert_eq!(shown(lists(&["1.1.1.1"], &["1.1.1.0/24"], None)), "allow 1.1.1.1, deny 1.1.1.0/24 / Public");
        assert_eq!(shown(lists(&["api.example.com"], &[ALL], None)), "allow api.example.com / Deny");
        assert_eq!(shown(lists(&["8.8.8.8", "8.8.8.8"], &["8.8.8.8"], None)), "allow 8.8.8.8 / Public");
    }

    #[test]
    fn lists_that_contradict_themselves_are_refused() {
        assert!(shown(lists(&["api.example.com"], &[], None)).starts_with("refused: network.allowOut"));
        assert!(shown(lists(&[], &["api.example.com"], None)).starts_with("refused: network.denyOut"));
        assert!(shown(lists(&["no such thing"], &[ALL], None)).starts_with("refused: network"));
    }

    #[test]
    fn a_host_keeps_its_place_for_the_port() {
        let network = Network { mask_request_host: Some("localhost:${PORT}".to_owned()), ..Network::default() };
        assert_eq!(host(&network).unwrap().unwrap().at(8080), "localhost:8080");
        let network = Network { mask_request_host: Some("a b".to_owned()), ..Network::default() };
        assert!(host(&network).is_err());
    }
}
