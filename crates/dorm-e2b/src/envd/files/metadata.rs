//! Metadata of files: headers of an upload, kept as extended attributes.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use dorm_agent_client::{Agent, Attribute, GuestBytes, GuestPath, GuestString};

use super::super::fault::{Failed, Fault};

const HEADER: &str = "x-metadata-";
/// The beginning of the names of attributes that clients know as metadata.
pub(in crate::envd) const ATTRIBUTE: &str = "user.e2b.";
const KEY_MAX: usize = 246;
const BYTES_MAX: usize = 4096;

/// The metadata in the headers of an upload.
pub(super) fn of(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Fault> {
    let mut found = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(HEADER) else { continue };
        if key.is_empty() || key.len() > KEY_MAX {
            return Err(Fault::invalid(format!("metadata key '{key}' must have 1 to {KEY_MAX} characters")));
        }
        let text = value.as_bytes();
        let is_printable = text.iter().all(|byte| (b' '..=b'~').contains(byte));
        let text = std::str::from_utf8(text).ok().filter(|_| is_printable);
        let text =
            text.ok_or_else(|| Fault::invalid(format!("the metadata value of '{key}' is not printable ASCII")))?;
        found.insert(key.to_owned(), text.to_owned());
    }
    let bytes: usize = found.iter().map(|(key, value)| key.len() + value.len()).sum();
    match bytes <= BYTES_MAX {
        true => Ok(found),
        false => Err(Fault::invalid(format!("the metadata has {bytes} bytes: the maximum is {BYTES_MAX}"))),
    }
}

/// Replaces the metadata of a file.
pub(super) async fn replace(
    agent: &Agent,
    path: &GuestPath,
    metadata: &BTreeMap<String, String>,
) -> Result<(), Failed> {
    let invalid = |error: dorm_agent_client::GuestError| Fault::invalid(error.to_string());
    let before = agent.attributes(path).await?;
    let own = before.into_iter().map(|attribute| attribute.name).filter(|name| is_left(name, metadata));
    let remove: Vec<GuestString> = own.collect();
    let attribute = |(key, value): (&String, &String)| {
        let name = GuestString::try_from(format!("{ATTRIBUTE}{key}")).map_err(invalid)?;
        Ok::<_, Fault>(Attribute { name, value: GuestBytes(value.clone().into_bytes()) })
    };
    let set: Vec<Attribute> = metadata.iter().map(attribute).collect::<Result<_, _>>()?;
    // A change of attributes is an event for those who watch the file.
    if !set.is_empty() || !remove.is_empty() {
        agent.set_attributes(path, set, remove).await?;
    }
    Ok(())
}

/// Whether an attribute is metadata that is not set again.
fn is_left(name: &GuestString, metadata: &BTreeMap<String, String>) -> bool {
    let name = name.to_text();
    name.strip_prefix(ATTRIBUTE).is_some_and(|key| !metadata.contains_key(key))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let header = |(name, value): &(&str, &[u8])| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap())
        };
        pairs.iter().map(header).collect()
    }

    #[test]
    fn metadata_is_read_from_headers() {
        let found = of(&headers(&[("X-Metadata-Some-Key", b"a b"), ("X-Other", b"c")])).unwrap();
        assert_eq!(found, BTreeMap::from([("some-key".to_owned(), "a b".to_owned())]));
        let (long, text) = (format!("x-metadata-{}", "k".repeat(KEY_MAX + 1)), vec![b'v'; BYTES_MAX]);
        for wrong in
            [(long.as_str(), &b"v"[..]), ("x-metadata-", b"v"), ("x-metadata-a", b"\xc3\xa4"), ("x-metadata-a", &text)]
        {
            assert!(of(&headers(&[wrong])).is_err());
        }
    }
}
