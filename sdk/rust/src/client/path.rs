//! Paths of requests.

/// Whether a route uses the inside of a sandbox.
pub(super) fn is_inside(path: &str) -> bool {
    let part = path.split('/').nth(3).unwrap_or_default();
    path.starts_with("/sandboxes/") && ["exec", "processes", "services", "files", "watchers"].contains(&part)
}

/// Returns the path of a part of a sandbox.
pub(super) fn sandbox(sandbox: &str, rest: &str) -> String {
    format!("/sandboxes/{}/{rest}", segment(sandbox))
}

/// Encodes a text as one segment of a path, whatever it contains.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    // An empty segment would name the list, and dots, however they are encoded, its parent. No name
    // contains a space.
    if matches!(text, "" | "." | "..") {
        encoded.push_str("%20");
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn whatever_a_user_types_stays_one_segment_of_the_path() {
        for (text, path) in
            [("web-1", "web-1"), ("a/b?c#d", "a%2Fb%3Fc%23d"), ("..", "..%20"), ("", "%20"), ("ü", "%C3%BC")]
        {
            assert_eq!(segment(text), path);
        }
    }
}
