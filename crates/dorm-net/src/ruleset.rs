//! The packet rules, as scripts for `nft`. Pure text: the order of the rules is the policy, so it
//! is all in one place.
//!
//! The rules apply to every packet of a connection, not only to its first, by the address that the
//! sandbox connected to. Therefore a changed policy also ends existing connections. Refused packets
//! get a reply (a reset, or an ICMP message), so that programs in the sandbox fail at once instead
//! of hanging; only packets that no honest guest sends are dropped.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::time::Duration;

use dorm_lifecycle::HostPattern;
use ipnet::Ipv4Net;

use crate::layout::{INNER_INTERFACE, INTERFACES, Layout, SANDBOX, UPLINK_INTERFACE};
use crate::limits::TrafficLimits;
use crate::policy::Policy;

/// The networks that neither [`Policy::Public`] nor any name can lead to. The networks for
/// documentation (such as 198.51.100.0/24) are not included, since no host can have an address in
/// them.
const NOT_PUBLIC: [&str; 13] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    // Azure's services for its virtual machines, which are comparable to link-local addresses.
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "192.88.99.0/24",
];

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

/// The port for DNS.
pub(crate) const NAME_PORT: u16 = 53;

/// The set of addresses of resolved names. It cannot grow beyond its size: `permit` then fails, and
/// the set is flushed.
const NAMED: &str = "{ type ipv4_addr; flags timeout; size 4096; }";

/// Returns whether an address may be permitted because a name resolves to it.
pub(crate) fn is_public(address: Ipv4Addr) -> bool {
    let networks = NOT_PUBLIC.iter().filter_map(|text| text.parse::<Ipv4Net>().ok());
    !networks.into_iter().any(|network| network.contains(&address))
}

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
    ct direction reply accept
    iifname "{INNER_INTERFACE}" meta l4proto {{ tcp, udp }} th dport {NAME_PORT} jump names
    jump refuse
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
"#
    )
}

/// Returns the script that replaces the policy of a gateway atomically. Addresses learned before
/// are forgotten.
///
/// A connection to a learned address is marked, and continues when the address expires: learned
/// addresses only decide about new connections. The mark is derived from the list of names, so the
/// connection ends when the list changes.
pub(crate) fn egress(policy: &Policy) -> String {
    // The forwarder, not these rules, decides about names.
    let mut script = "flush set ip dorm named\nflush chain ip dorm egress\nflush chain ip dorm names\n".to_owned();
    let mut rule = |chain: &str, text: &str| {
        let _ = writeln!(script, "add rule ip dorm {chain} {text}");
    };
    rule("names", "accept");
    match policy {
        Policy::Nothing => {}
        Policy::Public => {
            rule("egress", &format!("ct original ip daddr {{ {} }} return", NOT_PUBLIC.join(", ")));
            rule("egress", "accept");
        }
        Policy::Only { networks, hosts } => {
            // Without overlaps, which a set of intervals does not accept.
            let networks = Ipv4Net::aggregate(networks);
            if networks.iter().any(|network| network.prefix_len() == 0) {
                rule("egress", "accept");
            } else if !networks.is_empty() {
                let list = networks.iter().map(Ipv4Net::to_string).collect::<Vec<_>>().join(", ");
                rule("egress", &format!("ct original ip daddr {{ {list} }} accept"));
            }
            if !hosts.is_empty() {
                let mark = mark(hosts);
                rule("egress", &format!("ct original ip daddr {{ {} }} return", NOT_PUBLIC.join(", ")));
                rule("egress", &format!("ct mark {mark} accept"));
                rule("egress", &format!("ct original ip daddr @named ct mark set {mark} accept"));
            }
        }
    }
    script
}

/// Returns the script that permits addresses for a limited time, and renews those that are already
/// permitted.
pub(crate) fn permit(addresses: &[(Ipv4Addr, Duration)]) -> String {
    let list = |seconds: &dyn Fn(Duration) -> String| {
        let elements = addresses.iter().map(|(address, time)| format!("{address}{}", seconds(*time)));
        elements.collect::<Vec<_>>().join(", ")
    };
    // Kernels before 6.12 do not update the timeout of an existing element.
    format!(
        "add element ip dorm named {{ {} }}\ndelete element ip dorm named {{ {} }}\nadd element ip dorm named {{ {} }}\n",
        list(&|_| " timeout 1s".into()),
        list(&|_| String::new()),
        list(&|time| format!(" timeout {}s", time.as_secs())),
    )
}

/// The script that forgets all learned addresses.
pub(crate) const FORGET: &str = "flush set ip dorm named\n";

/// Returns a connection mark that is never 0, which means unmarked.
fn mark(hosts: &[HostPattern]) -> u32 {
    let mut hasher = DefaultHasher::new();
    hosts.hash(&mut hasher);
    u32::try_from(hasher.finish() >> 33).unwrap_or(0) + 1
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
    use dorm_lifecycle::Egress;

    use super::*;

    fn only(entries: &[&str]) -> Policy {
        Policy::of(&Egress::Allow(entries.iter().map(|&entry| entry.to_owned()).collect())).unwrap()
    }

    #[test]
    fn a_list_of_networks_becomes_one_rule_without_overlaps() {
        let script = egress(&only(&["198.51.100.7/24", "198.51.100.9", "10.0.0.0/8"]));
        assert!(script.contains("add rule ip dorm egress ct original ip daddr { 10.0.0.0/8, 198.51.100.0/24 } accept"));
        assert!(!script.contains("@named"));
    }

    #[test]
    fn an_empty_list_permits_nothing() {
        assert!(!egress(&only(&[])).contains("rule ip dorm egress"));
        assert!(!egress(&Policy::Nothing).contains("rule ip dorm egress"));
    }

    #[test]
    fn the_whole_internet_can_be_allowed() {
        assert!(egress(&only(&["0.0.0.0/0", "10.0.0.0/8"])).contains("add rule ip dorm egress accept"));
    }

    #[test]
    fn private_networks_are_refused_before_learned_addresses_are_permitted_and_after_listed_networks() {
        let script = egress(&only(&["10.1.0.0/16", "example.com"]));
        let at = |text: &str| script.find(text).unwrap();
        assert!(at("{ 10.1.0.0/16 } accept") < at("169.254.0.0/16"));
        assert!(at("169.254.0.0/16") < at("ct mark"));
    }

    #[test]
    fn connections_by_name_are_marked_by_the_list_of_names() {
        let rules = |entries: &[&str]| {
            let script = egress(&only(entries));
            script.lines().filter(|line| line.contains("ct mark")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rules(&["a.test", "b.test"]), rules(&["b.test", "A.test.", "10.0.0.0/8", "a.test"]));
        assert_ne!(rules(&["a.test"]), rules(&["*.a.test"]));
    }

    #[test]
    fn every_network_that_is_not_public_can_be_read() {
        assert!(NOT_PUBLIC.iter().all(|text| text.parse::<Ipv4Net>().is_ok()));
        assert!(is_public([198, 51, 100, 10].into()) && !is_public([172, 31, 255, 255].into()));
    }
}
