//! DNS messages, as far as a filter must understand them. The only module that knows the DNS library.
//!
//! Nothing that a sandbox writes is passed on: a permitted question is written anew, in lower case and with a number of
//! our own, so that only the name itself leaves the host.

use std::net::Ipv4Addr;

use dorm_lifecycle::HostPattern;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};

pub(crate) const HEADER: usize = 12;
/// The longest question that is read: a name, and options that are thrown away.
const QUESTION_MAX: usize = 4096;
/// Aliases that are followed within one answer.
const CHAIN_MAX: usize = 16;
/// Addresses that are learned from one answer.
pub(crate) const ADDRESSES_MAX: usize = 64;
/// What a server may send over UDP at most: no datagram of this size is split on usual networks.
const DATAGRAM_MAX: u16 = 1232;
const DATAGRAM_LEAST: u16 = 512;

/// Why a question gets no answer from a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It cannot be read.
    Malformed,
    /// No server answered.
    Failed,
    /// The sandbox may not ask for this.
    Refused,
}

impl Refusal {
    /// The answer that says so: the question with other flags.
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

/// A question that could be read.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Its name in lower case.
    query: Query,
    /// The bytes of its name, as the sandbox wrote them.
    written: Vec<u8>,
    id: [u8; 2],
    /// What its sender takes over UDP, and whether it wants signatures, if it says so.
    edns: Option<(u16, bool)>,
    checking_disabled: bool,
}

impl Question {
    /// Reads a message with exactly one question, of the class for the internet.
    pub(crate) fn read(message: &[u8]) -> Result<Self, Refusal> {
        let id = message.first_chunk::<2>().filter(|_| message.len() <= QUESTION_MAX).ok_or(Refusal::Malformed)?;
        let read = Message::from_vec(message).map_err(|_| Refusal::Malformed)?;
        let metadata = &read.metadata;
        let [query] = read.queries.as_slice() else { return Err(Refusal::Malformed) };
        if metadata.message_type != MessageType::Query || !read.answers.is_empty() || !read.authorities.is_empty() {
            return Err(Refusal::Malformed);
        }
        let is_plain = metadata.op_code == OpCode::Query && query.query_class == DNSClass::IN;
        // Whole zones, "anything there is" and pseudo-types are not asked for by programs that look for a host.
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

    /// Whether one of the patterns permits its name.
    pub(crate) fn is_permitted(&self, patterns: &[HostPattern]) -> bool {
        patterns.iter().any(|pattern| pattern.permits(self.query.name.iter()))
    }

    /// The same question in words of our own.
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

    /// What the sandbox gets for a server's answer, and the addresses that are in it.
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
        // Some resolvers compare their question with that of the answer to the letter.
        if let Some(name) = bytes.get_mut(HEADER..HEADER + self.written.len())
            && name.eq_ignore_ascii_case(&self.written)
        {
            name.copy_from_slice(&self.written);
        }
        Ok(Answer { bytes, addresses: self.addresses(&read) })
    }

    /// The addresses of the name that was asked for, by way of aliases in the same answer.
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

/// A server's answer to a question of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    /// What the sandbox gets.
    pub(crate) bytes: Vec<u8>,
    /// The addresses of the name.
    pub(crate) addresses: Vec<Address>,
}

/// An address that a name has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) address: Ipv4Addr,
    /// How many seconds the answer holds, as the server says.
    pub(crate) ttl: u32,
}

/// How long a name is in a message that does not abbreviate it.
fn wire_length(name: &Name) -> usize {
    name.iter().map(|label| label.len() + 1).sum::<usize>() + 1
}

#[cfg(test)]
pub(crate) mod tests;
