//! Entry points for fuzzers: what clients of `envd` send. Not part of any shipped build.

use bytes::Bytes;
use futures_util::{FutureExt as _, stream};

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
    }
}
