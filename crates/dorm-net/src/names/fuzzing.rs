//! See [`crate::fuzzing`].

use dorm_lifecycle::EgressTarget;

use super::message::{ADDRESSES_MAX, HEADER, Question, Refusal};

/// Parses a sandbox's query.
///
/// # Panics
/// When the host would send more than a permitted name, or a refusal has another length than the
/// query.
pub fn question(bytes: &[u8]) {
    assert_eq!(Refusal::Refused.answer(bytes).len(), bytes.len());
    let Ok(question) = Question::read(bytes) else { return };
    let Ok(rewritten) = question.rewritten() else { return };
    // A header, a name of 255 bytes with its type and class, and the requested size.
    assert!(rewritten.len() <= HEADER + 255 + 4 + 11, "{}", rewritten.len());
    let again = Question::read(&rewritten);
    let listed = |text: &str| match text.parse() {
        Ok(EgressTarget::Host(pattern)) => vec![pattern],
        _ => vec![],
    };
    let listed = [listed("one.test"), listed("*.wild.test")].concat();
    let is_listed = |question: &Question| listed.iter().any(|pattern| question.is_permitted(pattern));
    let permitted = is_listed(&question);
    assert!(again.is_ok_and(|again| is_listed(&again) == permitted));
    if permitted {
        let name = rewritten.get(HEADER..).unwrap_or_default();
        let ends = |labels: &[u8]| name.windows(labels.len()).any(|part| part == labels);
        assert!(ends(b"\x03one\x04test\0") || ends(b"\x04wild\x04test\0"));
    }
}

/// Parses a server's reply to a query for the addresses of `www.example.com`.
///
/// # Panics
/// When more is learned than allowed, or the sandbox would get more than the server sent.
pub fn answer(bytes: &[u8]) {
    const QUESTION: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03WWW\x07example\x03com\0\0\x01\0\x01";
    let Ok(question) = Question::read(QUESTION) else { return };
    if let Ok(answer) = question.answered(bytes) {
        assert_eq!(answer.bytes.len(), bytes.len());
        assert_eq!(answer.bytes.get(..2), QUESTION.get(..2));
        assert!(answer.addresses.len() <= ADDRESSES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use hickory_proto::rr::RecordType;

    use super::super::message::tests as made;

    fn seeds(target: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
    }

    /// Checks that the committed seed is up to date; `DORM_UPDATE` updates it.
    fn seed(target: &str, name: &str, bytes: &[u8]) {
        let path = seeds(target).join(name);
        if std::env::var_os("DORM_UPDATE").is_some() {
            std::fs::create_dir_all(seeds(target)).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{} is stale: run this with DORM_UPDATE=1", path.display());
    }

    fn each(target: &str, read: fn(&[u8])) {
        for seed in std::fs::read_dir(seeds(target)).unwrap() {
            read(&std::fs::read(seed.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn questions_that_fuzzers_begin_with_pass() {
        seed("questions", "address", &made::question("one.test.", RecordType::A));
        seed("questions", "below", &made::question("a.b.wild.test.", RecordType::AAAA));
        seed("questions", "with-options", &made::question_with_options("one.test."));
        seed("questions", "zone", &made::question("test.", RecordType::AXFR));
        each("questions", super::question);
    }

    #[test]
    fn answers_that_fuzzers_begin_with_pass() {
        let asked = made::question("www.example.com.", RecordType::A);
        seed("answers", "address", &made::answer(&asked, vec![made::a("www.example.com.", [198, 51, 100, 10])]));
        let chain = vec![
            made::cname("www.example.com.", "cdn.test."),
            made::cname("cdn.test.", "edge.test."),
            made::a("edge.test.", [198, 51, 100, 10]),
        ];
        seed("answers", "chain", &made::answer(&asked, chain));
        let circle = vec![made::cname("www.example.com.", "b.test."), made::cname("b.test.", "www.example.com.")];
        seed("answers", "circle", &made::answer(&asked, circle));
        each("answers", super::answer);
    }
}
