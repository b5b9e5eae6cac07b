//! Searches in the files.

use dorm_agent_proto::{BinaryFiles, Entry, Event, Failure, FileKind, Matcher, SearchLimit, SearchSpec, SearchSummary};

use super::Files;

impl Files {
    /// Returns the events of a search, whose last one is its end.
    pub(crate) fn search(&self, spec: &SearchSpec) -> Result<Vec<Event>, Failure> {
        let matcher = Matcher::new(spec)?;
        let stat = self.stat(&spec.path)?;
        let entries = match stat.kind {
            FileKind::Directory => self.list(&spec.path, spec.depth.unwrap_or(u32::MAX))?,
            _ => vec![Entry { path: spec.path.clone(), stat }],
        };
        let (mut events, mut summary) = (Vec::new(), SearchSummary::default());
        for entry in entries {
            if summary.entries >= spec.limits.entries {
                summary.stopped = Some(SearchLimit::Entries);
                break;
            }
            summary.entries += 1;
            let own = entry.path.as_bytes();
            let below = own.strip_prefix(spec.path.as_bytes()).unwrap_or(own);
            let below = below.strip_prefix(b"/").unwrap_or(below);
            if !matcher.takes(if below.is_empty() { own } else { below }, entry.stat.kind) {
                continue;
            }
            let found = match matcher.wants_lines() {
                true => self.lines(spec, &matcher, &entry, &mut summary)?,
                false => vec![Event::Entry(entry)],
            };
            let room = spec.limits.results as usize - events.len();
            if found.len() > room {
                summary.stopped = Some(SearchLimit::Results);
            }
            events.extend(found.into_iter().take(room));
            if summary.stopped.is_some() {
                break;
            }
        }
        events.push(Event::Searched(summary));
        Ok(events)
    }

    fn lines(
        &self,
        spec: &SearchSpec,
        matcher: &Matcher,
        entry: &Entry,
        summary: &mut SearchSummary,
    ) -> Result<Vec<Event>, Failure> {
        let bytes = self.read(&entry.path)?;
        let is_skipped = spec.lines.as_ref().is_some_and(|lines| lines.binary == BinaryFiles::Skip);
        if is_skipped && bytes.iter().take(8192).any(|byte| *byte == 0) {
            summary.binary += 1;
            return Ok(Vec::new());
        }
        let left = spec.limits.bytes - summary.bytes;
        let room = usize::try_from(left).unwrap_or(usize::MAX);
        if bytes.len() > room {
            summary.stopped = Some(SearchLimit::Bytes);
        }
        let read = &bytes[..bytes.len().min(room)];
        summary.bytes += read.len() as u64;
        let text = read.strip_suffix(b"\n").unwrap_or(read);
        let lines = text.split(|byte| *byte == b'\n').filter(|_| !read.is_empty());
        Ok((1..)
            .zip(lines)
            .filter_map(|(number, line)| matcher.line(&entry.path, number, line))
            .map(Event::Line)
            .collect())
    }
}
