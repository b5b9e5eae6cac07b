//! The packet rules, as scripts for `nft`. Pure text: the order of the rules is the policy, so it
//! is all in one place.
//!
//! The rules apply to every packet of a connection, not only to its first, by the address that the
//! sandbox connected to. Therefore a changed policy also ends existing connections. Refused packets
//! get a reply (a reset, or an ICMP message), so that programs in the sandbox fail at once instead
//! of hanging; only packets that no honest guest sends are dropped.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use dorm_lifecycle::{EgressDefault, Network};
use ipnet::Ipv4Net;

use crate::layout::{INNER_INTERFACE, INTERFACES, Layout, SANDBOX, UPLINK_INTERFACE};
use crate::limits::TrafficLimits;
use crate::policy::{Part, Policy};

/// How many DNS queries over UDP a sandbox may send per second, and in a burst.
const QUESTIONS: (u32, u32) = (500, 1000);

/// How many seconds a connection of a sandbox that is closed, or not yet established, stays in the
/// connection tables. In two of these states it does not count as a connection any more, so their
/// number is the rate times their time.
pub(crate) const CLOSING: [(&str, u32); 7] = [
    ("syn_sent", 30),
    ("syn_recv", 30),
    ("fin_wait", 30),
    ("close_wait", 30),
    ("last_ack", 10),
    ("time_wait", 10),
    ("close", 5),
];

/// How long the host's connection table keeps closed connections of sandboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    /// As long as [`CLOSING`] says.
    Soon,
    /// As long as all other connections of the host.
    AsTheHost,
}

/// The size of the IPv4 and TCP headers.
const HEADERS: u16 = 40;

/// The port of the gateway at which the connections arrive that header rules are about.
pub(crate) const PROXY_PORT: u16 = 8443;

/// How many such connections a sandbox may open per second, and in a burst.
const PROXIED: (u32, u32) = (100, 300);

/// The port for DNS.
pub(crate) const NAME_PORT: u16 = 53;

/// The mark of a connection that a changed policy ended, once the sandbox has its reset. A program
/// that only receives notices nothing unless it gets a packet: the first packet that is refused
/// becomes a reset for the sandbox, and the second is answered with a reset to the sender.
const CUT: u32 = u32::MAX;

/// The set of addresses of resolved names. It cannot grow beyond its size: `permit` then fails, and
/// the set is flushed.
const NAMED: &str = "{ type ipv4_addr; flags timeout; size 4096; }";

/// Returns the gateway's rules, for its namespace: at first nothing may leave.
pub(crate) fn gateway(uplink_mtu: u16, limits: &TrafficLimits) -> String {
    let segment = uplink_mtu - HEADERS;
    let (connections, rate, burst) = (limits.connections, limits.connection_rate(), limits.connection_burst());
    let (questions, questions_burst) = QUESTIONS;
    let packets = limits.packets_per_second.map_or_else(String::new, |packets| {
        let burst = (packets.get() / 10).max(1);
        format!("iifname \"{INNER_INTERFACE}\" limit rate over {packets}/second burst {burst} packets drop")
    });
    format!(
        r#"
table ip dorm {{
  chain refuse {{
    ct direction reply meta l4proto tcp ct mark != {CUT} ct mark set {CUT} tcp flags set rst | ack accept
    meta l4proto tcp reject with tcp reset
    meta l4proto udp reject with icmp type port-unreachable
    reject with icmp type admin-prohibited
  }}
  set named {NAMED}
  chain egress {{ }}
  chain names {{ accept; }}
  chain police {{ }}
  chain flood {{
    type filter hook prerouting priority -300; policy accept;
    iifname "{INNER_INTERFACE}" udp dport {NAME_PORT} limit rate over {questions}/second burst {questions_burst} packets drop
    {packets}
  }}
  chain forward {{
    type filter hook forward priority 0; policy drop;
    ct state invalid drop
    iifname "{INNER_INTERFACE}" ip saddr != {SANDBOX} drop
    iifname "{UPLINK_INTERFACE}" ct state new jump refuse
    ct state new ct count over {connections} jump refuse
    ct state new ct status ! confirmed limit rate over {rate}/second burst {burst} packets jump refuse
    jump police
    tcp flags & (syn | rst) == syn tcp option maxseg size set {segment}
    jump egress
    jump refuse
  }}
  chain input {{
    type filter hook input priority 0; policy drop;
  }}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
    iifname "{INNER_INTERFACE}" meta l4proto {{ tcp, udp }} th dport {NAME_PORT} redirect to :{NAME_PORT}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    oifname "{UPLINK_INTERFACE}" masquerade
  }}
}}
{}"#,
        input(&[])
    )
}

/// Returns the script that replaces the rules about packets to the gateway itself. They are written
/// as a whole, because the gateways of an earlier version have others.
fn input(proxied: &[u16]) -> String {
    let (rate, burst) = PROXIED;
    let mut rules = vec![
        "ct direction reply accept".to_owned(),
        format!("iifname \"{INNER_INTERFACE}\" meta l4proto {{ tcp, udp }} th dport {NAME_PORT} jump names"),
    ];
    if !proxied.is_empty() {
        let to_proxy =
            format!("iifname \"{INNER_INTERFACE}\" ip saddr {SANDBOX} tcp dport {PROXY_PORT} ct status dnat");
        rules.push(format!("{to_proxy} ct state new limit rate over {rate}/second burst {burst} packets jump refuse"));
        rules.push(format!("{to_proxy} accept"));
    }
    rules.push("jump refuse".to_owned());
    let lines = rules.iter().map(|rule| format!("add rule ip dorm input {rule}\n"));
    lines.fold("flush chain ip dorm input\n".to_owned(), |script, line| script + &line)
}

/// Returns the script that leads connections to these ports to the proxy of the gateway, whatever
/// their address is. Nothing to them is forwarded any more: connections that are open end, and
/// programs do without QUIC.
fn proxied(ports: &[u16]) -> String {
    const CHAIN: &str = "add chain ip dorm proxied { type nat hook prerouting priority -101; policy accept; }\n\
                         flush chain ip dorm proxied\n";
    if ports.is_empty() {
        return CHAIN.to_owned();
    }
    let list = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "{CHAIN}add rule ip dorm proxied iifname \"{INNER_INTERFACE}\" tcp dport {{ {list} }} redirect to :{PROXY_PORT}\n\
         add rule ip dorm egress meta l4proto {{ tcp, udp }} ct original proto-dst {{ {list} }} return\n"
    )
}

/// Returns the script that replaces the policy of a gateway atomically. Addresses learned before
/// are forgotten.
///
/// A connection to a learned address is marked, and continues when the address expires: learned
/// addresses only decide about new connections. The mark is derived from the rules for names, so
/// the connection ends when these change.
pub(crate) fn egress(policy: &Policy) -> String {
    // The forwarder, not these rules, decides about names.
    let mut script = "flush set ip dorm named\nflush chain ip dorm egress\nflush chain ip dorm names\n".to_owned();
    for part in &policy.parts {
        if let Part::Learned { group, .. } = part {
            let set = named(*group);
            let _ = writeln!(script, "add set ip dorm {set} {NAMED}\nflush set ip dorm {set}");
        }
    }
    let ports = policy.proxied_ports();
    script += &input(&ports);
    script += &proxied(&ports);
    let not_public = networks(&Network::not_public().collect::<Vec<_>>());
    let public = format!("ct original ip daddr != {{ {not_public} }}");
    let mut rule = |chain: &str, text: &str| {
        let _ = writeln!(script, "add rule ip dorm {chain} {text}");
    };
    rule("names", "accept");
    for part in &policy.parts {
        match part {
            Part::Allow(allowed) => {
                let (mixed, plain): (Vec<_>, Vec<_>) = allowed.iter().partition(|network| network.is_mixed());
                if !plain.is_empty() {
                    rule("egress", &format!("{} accept", to(&plain)));
                }
                if !mixed.is_empty() {
                    rule("egress", &format!("{} {public} accept", to(&mixed)));
                }
            }
            Part::Deny(denied) => rule("egress", &format!("{} return", to(denied))),
            Part::Learned { group, mark } => {
                rule("egress", &format!("ct mark {mark} {public} accept"));
                let set = named(*group);
                rule("egress", &format!("ct original ip daddr @{set} {public} ct mark set {mark} accept"));
            }
        }
    }
    if policy.default == EgressDefault::Public {
        rule("egress", &format!("{public} accept"));
    }
    script
}

/// Returns the condition that an address is in one of these networks.
fn to(given: &[Network]) -> String {
    match given.contains(&Network::ALL) {
        true => String::new(),
        false => format!("ct original ip daddr {{ {} }}", networks(given)),
    }
}

/// Returns the elements of a set, without overlaps, which a set of intervals does not accept.
fn networks(given: &[Network]) -> String {
    let nets = given.iter().filter_map(|network| Ipv4Net::new(network.address(), network.prefix()).ok());
    let whole = Ipv4Net::aggregate(&nets.collect());
    whole.iter().map(Ipv4Net::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the name of the set of addresses that are learned for a group of names. The first exists
/// from the beginning.
fn named(group: usize) -> String {
    if group == 0 { "named".to_owned() } else { format!("named{group}") }
}

/// Returns the script that permits addresses for a limited time, and renews those that are already
/// permitted.
pub(crate) fn permit(group: usize, addresses: &[(Ipv4Addr, Duration)]) -> String {
    let set = named(group);
    let list = |seconds: &dyn Fn(Duration) -> String| {
        let elements = addresses.iter().map(|(address, time)| format!("{address}{}", seconds(*time)));
        elements.collect::<Vec<_>>().join(", ")
    };
    // Kernels before 6.12 do not update the timeout of an existing element.
    format!(
        "add element ip dorm {set} {{ {} }}\ndelete element ip dorm {set} {{ {} }}\nadd element ip dorm {set} {{ {} }}\n",
        list(&|_| " timeout 1s".into()),
        list(&|_| String::new()),
        list(&|time| format!(" timeout {}s", time.as_secs())),
    )
}

/// Returns the script that forgets all addresses that were learned for a group of names.
pub(crate) fn forget(group: usize) -> String {
    format!("flush set ip dorm {}\n", named(group))
}

/// Returns the script for the host's rules for all leases of one daemon. It replaces existing ones.
///
/// The rules only refuse packets and never accept what another firewall of the host refuses. They
/// run before the usual ones. A packet to an address of the host that is forwarded to one of its
/// containers has already been translated here (`ct status dnat`), and is refused as well.
pub(crate) fn host(layout: &Layout, closing: Closing) -> String {
    let (table, uplinks, supernet) = (layout.table(), layout.uplinks_start(), layout.supernet());
    let (policy, rule) = match closing {
        Closing::Soon => {
            let times = CLOSING.map(|(state, seconds)| format!("{state}: {seconds}")).join(", ");
            let policy = format!("ct timeout closing {{ protocol tcp; l3proto ip; policy = {{ {times} }}; }}");
            (policy, format!("iifname \"{uplinks}*\" ct state new meta l4proto tcp ct timeout set \"closing\""))
        }
        Closing::AsTheHost => Default::default(),
    };
    format!(
        r#"
table inet {table} {{ }}
delete table inet {table}
table inet {table} {{
  {policy}
  chain refuse {{
    meta l4proto tcp reject with tcp reset
    meta l4proto udp reject with icmpx type port-unreachable
    reject with icmpx type admin-prohibited
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "{uplinks}*" jump refuse
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{uplinks}*" meta nfproto ipv6 drop
    iifname "{uplinks}*" ip saddr != {supernet} drop
    iifname "{uplinks}*" oifname "{INTERFACES}*" jump refuse
    iifname "{uplinks}*" ct status dnat jump refuse
    oifname "{uplinks}*" ct state != {{ established, related }} jump refuse
    {rule}
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr {supernet} oifname != "{INTERFACES}*" masquerade
  }}
}}
"#
    )
}

/// Returns the script that removes the host's rules, whether they exist or not.
pub(crate) fn no_host(layout: &Layout) -> String {
    let table = layout.table();
    format!("table inet {table} {{ }}\ndelete table inet {table}\n")
}

#[cfg(test)]
mod tests {
    use dorm_lifecycle::{Egress, EgressRule, EgressRules, Verdict};

    use super::*;

    fn only(entries: &[&str]) -> Policy {
        Policy::of(&Egress::Allow(entries.iter().map(|&entry| entry.to_owned()).collect())).unwrap()
    }

    fn rules(given: &[(Verdict, &str)], default: EgressDefault) -> String {
        let rules = given.iter().map(|(verdict, to)| EgressRule { verdict: *verdict, to: (*to).to_owned() }).collect();
        egress(&Policy::of(&Egress::Rules(EgressRules { rules, default, headers: Vec::new() })).unwrap())
    }

    #[test]
    fn a_list_of_networks_becomes_one_rule_without_overlaps() {
        let script = egress(&only(&["198.51.100.7/24", "198.51.100.9", "10.0.0.0/8"]));
        assert!(script.contains("add rule ip dorm egress ct original ip daddr { 10.0.0.0/8, 198.51.100.0/24 } accept"));
        assert!(!script.contains("@named"));
    }

    #[test]
    fn an_empty_list_permits_nothing() {
        for policy in [only(&[]), Policy::nothing(), Policy::of(&Egress::closed()).unwrap()] {
            assert!(!egress(&policy).contains("rule ip dorm egress"));
        }
    }

    #[test]
    fn a_wide_network_is_allowed_without_what_is_not_public_in_it() {
        for wide in ["0.0.0.0/0", "8.0.0.0/5"] {
            let script = egress(&only(&[wide, "10.1.0.0/16"]));
            let accepts: Vec<_> =
                script.lines().filter(|line| line.contains("egress") && line.contains("accept")).collect();
            assert_eq!(accepts.len(), 2, "{script}");
            assert!(accepts[0].ends_with("egress ct original ip daddr { 10.1.0.0/16 } accept"), "{script}");
            assert!(accepts[1].contains("!= { 0.0.0.0/8, 10.0.0.0/8,"), "{script}");
        }
    }

    #[test]
    fn rules_keep_their_order_and_the_default_is_last() {
        let script = rules(
            &[
                (Verdict::Deny, "1.1.1.1"),
                (Verdict::Allow, "a.test"),
                (Verdict::Deny, "1.0.0.0/8"),
                (Verdict::Allow, "b.test"),
            ],
            EgressDefault::Public,
        );
        let at = |text: &str| script.find(text).unwrap_or_else(|| panic!("{text} is not in {script}"));
        assert!(at("egress ct original ip daddr { 1.1.1.1/32 } return") < at("@named ct"));
        assert!(at("@named ct") < at("{ 1.0.0.0/8 } return"));
        assert!(at("{ 1.0.0.0/8 } return") < at("@named1 ct"));
        let last = script.lines().last().unwrap();
        assert!(last.starts_with("add rule ip dorm egress ct original ip daddr != {") && last.ends_with("} accept"));
        assert!(at("add set ip dorm named1") < at("flush set ip dorm named1"));
    }

    #[test]
    fn learned_addresses_are_never_permitted_beyond_the_public_ones() {
        let script = egress(&only(&["10.1.0.0/16", "example.com"]));
        let learned: Vec<_> = script.lines().filter(|line| line.contains("ct mark")).collect();
        assert_eq!(learned.len(), 2);
        assert!(learned.iter().all(|line| line.contains("!= { 0.0.0.0/8") && line.contains("169.254.0.0/16")));
    }
}
