//! Entry points for fuzzers: what clients send. Not part of any shipped build.

use axum::http::Uri;
use bytes::Bytes;
use futures_util::{FutureExt as _, stream};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::control::fuzzing::metadata;
use crate::envd::fuzzing::{Decoder, Fault, Form, message};

/// How large the pieces are in which an input arrives.
const SIZES: [usize; 3] = [1, 7, 1 << 20];

const FORM: &str = "multipart/form-data; boundary=b";

/// Reads frames of the Connect protocol, and their messages.
///
/// # Panics
/// If it depends on the pieces in which they arrive what is read.
pub fn connect(bytes: &[u8]) {
    let [found, others @ ..] = SIZES.map(|size| frames(bytes, size));
    for other in others {
        assert_eq!(other, found);
    }
    found.0.iter().for_each(|json| message(json));
}

fn frames(bytes: &[u8], size: usize) -> (Vec<Bytes>, Result<(), Fault>) {
    let (mut decoder, mut found) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(size) {
        decoder.add(piece);
        loop {
            match decoder.next() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(fault) => return (found, Err(fault)),
            }
        }
    }
    (found, decoder.finish())
}

/// Reads a form with files.
///
/// # Panics
/// If it depends on the pieces in which it arrives what is read.
pub fn form(bytes: &[u8]) {
    let [found, others @ ..] = SIZES.map(|size| files(bytes, size));
    for other in others {
        // An error may be found later in larger pieces, but not something else.
        assert_eq!(other.is_some(), found.is_some());
        assert!(other.is_none() || other == found);
    }
}

type Files = Vec<(Option<String>, Vec<u8>)>;

fn files(bytes: &[u8], size: usize) -> Option<Files> {
    let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let read = async {
        let mut form = Form::new(FORM, stream::iter(pieces)).ok()?;
        let mut files = Vec::new();
        while let Some((name, mut part)) = form.next().await.ok()? {
            let mut content = Vec::new();
            while let Some(piece) = part.chunk().await.ok()? {
                content.extend_from_slice(&piece);
            }
            files.push((name, content));
        }
        Some(files)
    };
    let mut read = Box::pin(read);
    loop {
        // It waits only to let others run.
        if let Some(files) = read.as_mut().now_or_never() {
            return files;
        }
    }
}

/// Reads the metadata by which a list selects: from any query, and from that which a client makes
/// of the lines `KEY=VALUE`.
///
/// # Panics
/// If other metadata are read than a client encoded.
pub fn query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(uri) = uri(&text) {
        let _ = metadata(&uri);
    }
    let pairs: Vec<(String, String)> = text
        .split('\n')
        .map(|line| line.split_once('=').unwrap_or((line, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let twice = |text: &str| encoded(&encoded(text));
    let form: Vec<String> = pairs.iter().map(|(key, value)| format!("{}={}", twice(key), twice(value))).collect();
    // A long one is no URI any more.
    if let Ok(uri) = uri(&format!("metadata={}", encoded(&form.join("&")))) {
        assert_eq!(metadata(&uri).ok(), Some(pairs));
    }
}

fn uri(query: &str) -> Result<Uri, axum::http::uri::InvalidUri> {
    format!("/v2/sandboxes?{query}").parse()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    fn each_seed(target: &str, read: fn(&[u8])) {
        let seeds = format!("{}/../../fuzz/seeds/{target}", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for seed in std::fs::read_dir(&seeds).unwrap() {
            let bytes = std::fs::read(seed.unwrap().path()).unwrap();
            for length in 0..=bytes.len() {
                read(&bytes[..length]);
            }
            count += 1;
        }
        assert!(count > 0, "there are no seeds in {seeds}");
    }

    #[test]
    fn seeds_are_read_whole_and_cut() {
        each_seed("connect", super::connect);
        each_seed("form", super::form);
        each_seed("query", super::query);
    }
}
