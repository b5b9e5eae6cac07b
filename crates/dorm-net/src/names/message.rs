//! DNS messages, as far as a filter must understand them. This is the only module that uses the DNS
//! library.
//!
//! No bytes of a sandbox are forwarded: a permitted query is encoded anew, in lower case and with
//! our own ID, so that only the name itself leaves the host.

use std::net::Ipv4Addr;

use dorm_lifecycle::HostPattern;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

pub(crate) const HEADER: usize = 12;
/// The maximum length of a query: a name, and options that are dropped.
const QUESTION_MAX: usize = 4096;
/// The maximum number of aliases followed within one reply.
const CHAIN_MAX: usize = 16;
/// The maximum number of addresses learned from one reply.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// The maximum UDP reply requested from a server: datagrams of this size are not fragmented on
/// usual networks.
const DATAGRAM_MAX: u16 = 1232;
const DATAGRAM_LEAST: u16 = 512;

/// Why a query is not answered by a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The query is malformed.
    Malformed,
    /// No server answered.
    Failed,
    /// The sandbox may not ask for this.
    Refused,
}

impl Refusal {
    /// Returns the reply with this error: the query with other flags.
    pub(crate) fn answer(self, question: &[u8]) -> Vec<u8> {
        const RESPONSE: u8 = 0x80;
        const RECURSION_AVAILABLE: u8 = 0x80;
        let code = match self {
            Self::Malformed => 1,
            Self::Failed => 2,
            Self::Refused => 5,
        };
        let mut answer = question.to_vec();
        if let Some(flags) = answer.get_mut(2..4) {
            flags[0] |= RESPONSE;
            flags[1] = RECURSION_AVAILABLE | code;
        }
        answer
    }
}

/// A parsed query.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Its name is in lower case.
    query: Query,
    /// The bytes of its name as the sandbox sent them.
    written: Vec<u8>,
    id: [u8; 2],
    /// The maximum UDP reply that the sender accepts, and whether it wants signatures, if it uses
    /// EDNS.
    edns: Option<(u16, bool)>,
    checking_disabled: bool,
}

impl Question {
    /// Parses a message with exactly one question, of class IN.
    pub(crate) fn read(message: &[u8]) -> Result<Self, Refusal> {
        let id = message.first_chunk::<2>().filter(|_| message.len() <= QUESTION_MAX).ok_or(Refusal::Malformed)?;
        let read = Message::from_vec(message).map_err(|_| Refusal::Malformed)?;
        let metadata = &read.metadata;
        let [query] = read.queries.as_slice() else { return Err(Refusal::Malformed) };
        if metadata.message_type != MessageType::Query || !read.answers.is_empty() || !read.authorities.is_empty() {
            return Err(Refusal::Malformed);
        }
        let is_plain = metadata.op_code == OpCode::Query && query.query_class == DNSClass::IN;
        // Programs that look up a host do not query whole zones, `ANY` or pseudo-types.
        let pseudo = [RecordType::ANY, RecordType::AXFR, RecordType::IXFR, RecordType::OPT, RecordType::ZERO];
        if !is_plain || pseudo.contains(&query.query_type) {
            return Err(Refusal::Refused);
        }
        let written = message.get(HEADER..HEADER + wire_length(&query.name)).unwrap_or_default().to_vec();
        let mut lower = Query::query(query.name.to_lowercase(), query.query_type);
        lower.set_query_class(DNSClass::IN);
        let edns = read.edns.as_ref().map(|edns| (edns.max_payload(), edns.flags().dnssec_ok));
        Ok(Self { query: lower, written, id: *id, edns, checking_disabled: metadata.checking_disabled })
    }

    /// Returns the query for the addresses of a host; `None` if this cannot be a name.
    pub(crate) fn for_address(host: &str) -> Option<Self> {
        let mut name = Name::from_ascii(host).ok()?.to_lowercase();
        name.set_fqdn(true);
        let mut query = Query::query(name, RecordType::A);
        query.set_query_class(DNSClass::IN);
        let edns = Some((DATAGRAM_MAX, false));
        Some(Self { query, written: Vec::new(), id: [0; 2], edns, checking_disabled: false })
    }

    /// Returns whether a reply is incomplete, so that it must be asked for over TCP.
    pub(crate) fn is_truncated(reply: &[u8]) -> bool {
        reply.get(2).is_some_and(|flags| flags & 2 != 0)
    }

    /// Returns whether the pattern permits its name.
    pub(crate) fn is_permitted(&self, pattern: &HostPattern) -> bool {
        pattern.permits(self.query.name.iter())
    }

    /// Encodes the same query anew.
    pub(crate) fn rewritten(&self) -> Result<Vec<u8>, Refusal> {
        let mut message = Message::query();
        message.metadata.recursion_desired = true;
        message.metadata.checking_disabled = self.checking_disabled;
        message.add_query(self.query.clone());
        if let Some((size, signatures)) = self.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(size.clamp(DATAGRAM_LEAST, DATAGRAM_MAX)).set_version(0).set_dnssec_ok(signatures);
            message.set_edns(edns);
        }
        message.to_vec().map_err(|_| Refusal::Failed)
    }

    /// Returns the reply for the sandbox, given a server's reply, and the addresses in it.
    pub(crate) fn answered(&self, answer: &[u8]) -> Result<Answer, Refusal> {
        let read = Message::from_vec(answer).map_err(|_| Refusal::Failed)?;
        let is_ours = matches!(read.queries.as_slice(), [query] if query.query_type == self.query.query_type
            && query.query_class == DNSClass::IN
            && query.name.to_lowercase() == self.query.name);
        if read.metadata.message_type != MessageType::Response || !is_ours {
            return Err(Refusal::Failed);
        }
        let mut bytes = answer.to_vec();
        if let Some(id) = bytes.first_chunk_mut() {
            *id = self.id;
        }
        // Some resolvers compare the question in the reply with their own byte by byte.
        if let Some(name) = bytes.get_mut(HEADER..HEADER + self.written.len())
            && name.eq_ignore_ascii_case(&self.written)
        {
            name.copy_from_slice(&self.written);
        }
        Ok(Answer { bytes, addresses: self.addresses(&read) })
    }

    /// Returns the addresses of the queried name, following aliases in the same reply.
    fn addresses(&self, answer: &Message) -> Vec<Address> {
        let metadata = &answer.metadata;
        if self.query.query_type != RecordType::A
            || metadata.truncation
            || metadata.response_code != ResponseCode::NoError
        {
            return Vec::new();
        }
        let records = answer.answers.iter().filter(|record| record.dns_class == DNSClass::IN);
        let records: Vec<_> = records.map(|record| (record.name.to_lowercase(), record)).collect();
        let mut name = self.query.name.clone();
        for _ in 0..=CHAIN_MAX {
            let mut alias = None;
            let mut found = Vec::new();
            for (_, record) in records.iter().filter(|(owner, _)| *owner == name) {
                match &record.data {
                    RData::A(address) => found.push(Address { address: address.0, ttl: record.ttl }),
                    RData::CNAME(target) => alias = Some(target.0.to_lowercase()),
                    _ => {}
                }
            }
            match alias {
                _ if !found.is_empty() => {
                    found.truncate(ADDRESSES_MAX);
                    return found;
                }
                Some(next) => name = next,
                None => break,
            }
        }
        Vec::new()
    }
}

/// A server's reply to a query of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// The reply for the sandbox.
    pub(crate) bytes: Vec<u8>,
    /// The addresses of the name.
    pub(crate) addresses: Vec<Address>,
}

/// An address of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) address: Ipv4Addr,
    /// The TTL in seconds, as sent by the server.
    pub(crate) ttl: u32,
}

/// Returns the length of a name in a message that does not compress it.
fn wire_length(name: &Name) -> usize {
    name.iter().map(|label| label.len() + 1).sum::<usize>() + 1
}

#[cfg(test)]
pub(crate) mod tests;
