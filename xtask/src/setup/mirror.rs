//! The Debian mirror of this host, read from its apt sources.

use std::fs;
use std::path::Path;

pub(super) const DEFAULT: &str = "http://deb.debian.org/debian";

/// The content of a host's apt sources.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sources {
    /// Every active pair of URI and suite.
    entries: Vec<(String, String)>,
}

impl Sources {
    /// Reads the apt sources of the host. Files that cannot be read are ignored.
    pub(super) fn of_host() -> Self {
        let mut sources = Self::default();
        let mut files = vec![Path::new("/etc/apt/sources.list").to_owned()];
        if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
            let mut more: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            more.sort();
            files.append(&mut more);
        }
        for file in files {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("sources") => sources.add_stanzas(&text),
                Some("list") => sources.add_lines(&text),
                _ => {}
            }
        }
        sources
    }

    /// Returns the URI of the release `suite` itself.
    pub(super) fn mirror(&self, suite: &str) -> &str {
        self.entries.iter().find(|(_, of)| of == suite).map_or(DEFAULT, |(uri, _)| uri)
    }

    pub(super) fn has(&self, suite: &str) -> bool {
        self.entries.iter().any(|(_, of)| of == suite)
    }

    /// Parses the form of `*.sources`: stanzas of `Field: value`, continued by lines that begin
    /// with a space.
    fn add_stanzas(&mut self, text: &str) {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut stanza: Vec<(String, String)> = Vec::new();
        for line in lines.chain([""]) {
            if line.trim().is_empty() {
                self.add_stanza(&stanza);
                stanza.clear();
            } else if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = stanza.last_mut() {
                    value.push(' ');
                    value.push_str(line.trim());
                }
            } else if let Some((field, value)) = line.split_once(':') {
                stanza.push((field.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
    }

    fn add_stanza(&mut self, stanza: &[(String, String)]) {
        let values = |name: &str| {
            let value = stanza.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value);
            value.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let disabled = values("enabled").first().is_some_and(|word| matches!(word.as_str(), "no" | "false" | "0"));
        if disabled || !values("types").iter().any(|word| word == "deb") {
            return;
        }
        for uri in values("uris") {
            for suite in values("suites") {
                self.entries.push((uri.clone(), suite));
            }
        }
    }

    /// Parses the form of `*.list`: `deb [options] URI SUITE COMPONENT…`.
    fn add_lines(&mut self, text: &str) {
        for line in text.lines() {
            let Some(rest) = line.trim().strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t', '['])) else {
                continue;
            };
            let rest = rest.trim_start();
            let rest = match rest.strip_prefix('[') {
                Some(options) => options.split_once(']').map_or("", |(_, rest)| rest),
                None => rest,
            };
            let mut words = rest.split_whitespace();
            if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
                self.entries.push((uri.to_owned(), suite.to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_of_a_container_image_give_the_mirror() {
        let mut sources = Sources::default();
        sources.add_stanzas(
            "Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm\n bookworm-updates\n\
             Components: main\n\nTypes: deb\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\n\n\
             Enabled: no\nTypes: deb\nURIs: http://off.example\nSuites: bookworm-backports\n\n\
             Types: deb-src\nURIs: http://src.example\nSuites: sid\n",
        );
        assert_eq!(sources.mirror("bookworm"), "http://mirror.example/debian");
        assert!(sources.has("bookworm-updates"));
        assert!(!sources.has("bookworm-backports"));
        assert!(!sources.has("sid"));
    }

    #[test]
    fn lines_with_and_without_options_give_the_mirror() {
        let mut sources = Sources::default();
        sources.add_lines(
            "# deb http://old.example/debian bookworm main\ndeb-src http://src.example/debian sid main\n\
             deb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian bookworm main contrib\n\
             deb http://mirror.example/debian bookworm-backports main\n",
        );
        assert_eq!(sources.mirror("bookworm"), "https://mirror.example/debian");
        assert!(sources.has("bookworm-backports"));
        assert!(!sources.has("sid"));
    }

    #[test]
    fn without_sources_the_general_mirror_is_taken() {
        assert_eq!(Sources::default().mirror("bookworm"), DEFAULT);
    }
}
