//! Searches in files.

use dorm_agent_client as agent;
use dorm_api_types as wire;

use super::Of;

impl Of<agent::LineMatch> for wire::FoundLine {
    fn of(found: agent::LineMatch) -> Self {
        Self {
            path: wire::Text::from_bytes(found.path.as_bytes()),
            line: found.line,
            offset: found.at,
            text: wire::Text::from_bytes(&found.text.0),
            text_offset: found.text_at,
            cut: found.cut,
        }
    }
}

impl Of<agent::SearchSummary> for wire::SearchEnd {
    fn of(summary: agent::SearchSummary) -> Self {
        Self {
            truncated_by: summary.stopped.map(|limit| match limit {
                agent::SearchLimit::Results => wire::SearchLimit::Results,
                agent::SearchLimit::Entries => wire::SearchLimit::Entries,
                agent::SearchLimit::Bytes => wire::SearchLimit::Bytes,
                agent::SearchLimit::Time => wire::SearchLimit::Time,
                agent::SearchLimit::Size => wire::SearchLimit::Size,
            }),
            entries: summary.entries,
            read_bytes: summary.bytes,
            binary_files: summary.binary,
            unreadable: summary.unreadable,
            skipped_directories: summary.skipped,
        }
    }
}

impl Of<wire::FileKind> for agent::FileKind {
    fn of(kind: wire::FileKind) -> Self {
        match kind {
            wire::FileKind::File => Self::File,
            wire::FileKind::Directory => Self::Directory,
            wire::FileKind::Link => Self::Link,
            wire::FileKind::Other => Self::Other,
        }
    }
}
