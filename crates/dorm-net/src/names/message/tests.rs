use dorm_lifecycle::EgressTarget;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::rdata::{A, CNAME};
use hickory_proto::rr::{Record, RecordType};

use super::*;

/// Returns a query as a program in a sandbox encodes it.
pub(crate) fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.to_vec().unwrap()
}

/// Returns a query with additional records.
pub(crate) fn question_with_options(name: &str) -> Vec<u8> {
    let mut message = Message::from_vec(&question(name, RecordType::TXT)).unwrap();
    let mut edns = Edns::new();
    edns.set_max_payload(65_000).set_version(0);
    edns.options_mut().insert(EdnsOption::Unknown(65_001, b"secret".to_vec()));
    message.set_edns(edns);
    message.add_additional(a("secret.test.", [1, 2, 3, 4]));
    message.to_vec().unwrap()
}

/// Returns a server's reply with these records.
pub(crate) fn answer(asked: &[u8], records: Vec<Record>) -> Vec<u8> {
    let asked = Message::from_vec(asked).unwrap();
    let mut message = Message::response(asked.metadata.id, OpCode::Query);
    message.add_query(asked.queries[0].clone());
    message.add_answers(records);
    message.to_vec().unwrap()
}

pub(crate) fn a(name: &str, address: [u8; 4]) -> Record {
    Record::from_rdata(Name::from_ascii(name).unwrap(), 60, RData::A(A(address.into())))
}

pub(crate) fn cname(name: &str, target: &str) -> Record {
    Record::from_rdata(Name::from_ascii(name).unwrap(), 60, RData::CNAME(CNAME(Name::from_ascii(target).unwrap())))
}

fn pattern(text: &str) -> HostPattern {
    let Ok(EgressTarget::Host(pattern)) = text.parse() else { panic!("{text}") };
    pattern
}

/// Returns the addresses learned from these records, in reply to a query for `www.example.com`.
fn learned(records: Vec<Record>) -> Vec<[u8; 4]> {
    let asked = question("www.example.com.", RecordType::A);
    let read = Question::read(&asked).unwrap().answered(&answer(&asked, records)).unwrap();
    read.addresses.iter().map(|found| found.address.octets()).collect()
}

#[test]
fn a_refusal_keeps_the_question() {
    let question = [0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'x', 0, 0, 1, 0, 1];
    for (refusal, code) in [(Refusal::Malformed, 1), (Refusal::Failed, 2), (Refusal::Refused, 5)] {
        let answer = refusal.answer(&question);
        assert_eq!(answer[..4], [0xab, 0xcd, 0x81, 0x80 | code]);
        assert_eq!(answer[4..], question[4..]);
        assert_eq!(refusal.answer(&[1]), [1]);
    }
}

#[test]
fn only_the_name_of_a_question_leaves_the_host() {
    let written = question_with_options("WwW.eXample.com.");
    let rewritten = Question::read(&written).unwrap().rewritten().unwrap();
    let read = Message::from_vec(&rewritten).unwrap();
    assert_eq!(read.queries[0].name.to_ascii(), "www.example.com.");
    assert_eq!(read.queries[0].query_type, RecordType::TXT);
    assert!(read.additionals.is_empty() && read.metadata.recursion_desired);
    assert_eq!(read.max_payload(), 1232);
    assert!(!rewritten.windows(6).any(|bytes| bytes == b"secret"));
}

#[test]
fn a_question_that_is_none_is_not_forwarded() {
    let plain = question("a.test.", RecordType::A);
    let changed = |index: usize, byte: u8| {
        let mut bytes = plain.clone();
        bytes[index] = byte;
        Question::read(&bytes).map(|_| ())
    };
    assert_eq!(changed(2, 0x81), Err(Refusal::Malformed), "a response");
    assert_eq!(changed(5, 2), Err(Refusal::Malformed), "two questions");
    assert_eq!(changed(5, 0), Err(Refusal::Malformed), "no question");
    assert_eq!(changed(2, 0x29), Err(Refusal::Refused), "an update");
    assert_eq!(changed(plain.len() - 1, 3), Err(Refusal::Refused), "another class");
    assert_eq!(Question::read(&plain[..HEADER + 3]).map(|_| ()), Err(Refusal::Malformed), "cut off");
    assert_eq!(Question::read(&[0; QUESTION_MAX + 1]).map(|_| ()), Err(Refusal::Malformed), "too long");
    for kind in [RecordType::AXFR, RecordType::ANY] {
        assert_eq!(Question::read(&question("a.test.", kind)).map(|_| ()), Err(Refusal::Refused));
    }
}

#[test]
fn the_answer_repeats_the_question_to_the_letter() {
    let written = question("WwW.eXample.com.", RecordType::A);
    let read = Question::read(&written).unwrap();
    assert!(read.is_permitted(&pattern("*.example.com")) && !read.is_permitted(&pattern("example.com")));
    let asked = read.rewritten().unwrap();
    let got = read.answered(&answer(&asked, vec![a("www.example.com.", [198, 51, 100, 10])])).unwrap();
    assert_eq!(got.bytes[..2], written[..2]);
    assert_eq!(got.bytes[HEADER..written.len()], written[HEADER..]);
    assert_eq!(got.addresses.len(), 1);
}

#[test]
fn an_answer_to_another_question_is_none() {
    let read = Question::read(&question("www.example.com.", RecordType::A)).unwrap();
    for other in [question("other.test.", RecordType::A), question("www.example.com.", RecordType::AAAA)] {
        assert_eq!(read.answered(&answer(&other, vec![])), Err(Refusal::Failed));
    }
    assert_eq!(read.answered(&question("www.example.com.", RecordType::A)), Err(Refusal::Failed), "a question");
    assert_eq!(read.answered(b"nonsense"), Err(Refusal::Failed));
}

#[test]
fn addresses_are_learned_along_aliases_and_of_no_other_name() {
    let (one, other) = ([198, 51, 100, 10], [198, 51, 100, 11]);
    assert_eq!(learned(vec![a("www.example.com.", one), a("other.test.", other)]), [one]);
    assert_eq!(learned(vec![cname("www.example.com.", "cdn.test."), a("CDN.test.", one)]), [one]);
    assert_eq!(learned(vec![a("cdn.test.", one), cname("www.example.com.", "cdn.test.")]), [one], "in any order");
    assert_eq!(learned(vec![cname("www.example.com.", "cdn.test."), a("other.test.", other)]), [] as [[u8; 4]; 0]);
    assert_eq!(learned(vec![cname("a.test.", "b.test."), a("b.test.", other)]), [] as [[u8; 4]; 0]);
}

#[test]
fn a_chain_of_aliases_ends() {
    let circle = vec![cname("www.example.com.", "b.test."), cname("b.test.", "www.example.com.")];
    assert_eq!(learned(circle), [] as [[u8; 4]; 0]);
    let mut long = vec![cname("www.example.com.", "n0.test.")];
    long.extend((0..30).map(|step| cname(&format!("n{step}.test."), &format!("n{}.test.", step + 1))));
    long.push(a("n30.test.", [198, 51, 100, 10]));
    assert_eq!(learned(long), [] as [[u8; 4]; 0]);
    let many = (0..=255).map(|last| a("www.example.com.", [198, 51, 100, last])).collect();
    assert_eq!(learned(many).len(), ADDRESSES_MAX);
}
