//! Searches in the files of the sandbox.

use std::future::poll_fn;

use dorm_agent_proto::{Entry, Event, LineMatch, Request, SearchLimit, SearchSpec, SearchSummary};

use crate::agent::Agent;
use crate::channel::Item;
use crate::error::AgentError;
use crate::page::PAGE_MAX;

/// The most bytes that the results of a search take on the stream: six times what the agent sends
/// at most before it is written as JSON, and the rest of its events.
const STREAM_MAX: u64 = 48 << 20;
/// How many bytes of results are kept. The agent sends no more paths and lines than that.
const SIZE_MAX: u64 = 4 << 20;
/// How many bytes a result takes besides its texts.
const RESULT_BYTES: u64 = 256;

/// The files that a search has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundFiles {
    /// The files.
    pub entries: Vec<Entry>,
    /// How the search ended.
    pub summary: SearchSummary,
}

/// The lines that a search has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundLines {
    /// The lines.
    pub lines: Vec<LineMatch>,
    /// How the search ended.
    pub summary: SearchSummary,
}

impl Agent {
    /// Searches for files below a directory, without following links. It ends at the limits of
    /// `spec`, at [`PAGE_MAX`] results or at 4 MiB of them; the summary says at which. If the
    /// future is dropped, the agent stops.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotAFile`], [`AgentError::Older`],
    /// [`AgentError::TooManyOpen`]; [`AgentError::Invalid`] for a pattern that cannot be compiled,
    /// and for a directory such as `/proc`, whose files are not stored.
    pub async fn find_files(&self, mut spec: SearchSpec) -> Result<FoundFiles, AgentError> {
        spec.lines = None;
        let (mut entries, most) = (Vec::new(), limit(&mut spec));
        let summary = self.search(spec, |event| match event {
            Event::Entry(entry) if entries.len() < most => {
                entries.push(entry);
                true
            }
            _ => false,
        });
        let summary = summary.await?;
        Ok(FoundFiles { entries, summary })
    }

    /// Searches for lines in the regular files below a directory, or in one, as
    /// [`Agent::find_files`] does; `spec.lines` says for which.
    ///
    /// # Errors
    /// Those of [`Agent::find_files`].
    pub async fn find_lines(&self, mut spec: SearchSpec) -> Result<FoundLines, AgentError> {
        let (mut lines, most) = (Vec::new(), limit(&mut spec));
        let summary = self.search(spec, |event| match event {
            Event::Line(line) if lines.len() < most => {
                lines.push(line);
                true
            }
            _ => false,
        });
        let summary = summary.await?;
        Ok(FoundLines { lines, summary })
    }

    /// `take` returns whether an event is a result that may come.
    async fn search(&self, spec: SearchSpec, mut take: impl FnMut(Event) -> bool) -> Result<SearchSummary, AgentError> {
        let mut channel = self.follow(&Request::Search(spec)).await?;
        let mut summary: Option<SearchSummary> = None;
        let (mut size, mut is_cut) = (0, false);
        loop {
            match poll_fn(|context| channel.poll_item(context)).await.transpose()? {
                Some(Item::Event(Event::Searched(told))) if summary.is_none() => summary = Some(told),
                Some(Item::Event(event)) => {
                    let bytes = bytes_of(&event).filter(|_| summary.is_none() && channel.taken() <= STREAM_MAX);
                    let Some(bytes) = bytes else {
                        return Err(channel.unexpected("an unexpected event in a search"));
                    };
                    size += bytes;
                    // The targets of links and the names of owners do not count for the agent.
                    is_cut |= size > SIZE_MAX;
                    if !is_cut && !take(event) {
                        return Err(channel.unexpected("an unexpected event in a search"));
                    }
                }
                Some(Item::Data(_)) => return Err(channel.unexpected("unexpected data in a search")),
                None => {
                    let told = summary.ok_or_else(|| channel.unexpected("a search without its end"))?;
                    let stopped = if is_cut { Some(SearchLimit::Size) } else { told.stopped };
                    return Ok(SearchSummary { stopped, ..told });
                }
            }
        }
    }
}

/// Returns how many bytes a result takes; `None` for other events.
fn bytes_of(event: &Event) -> Option<u64> {
    let texts = match event {
        Event::Entry(Entry { path, stat }) => {
            let names = [&stat.owner, &stat.group].into_iter().flatten().map(String::len);
            let link = stat.link.as_ref().map_or(0, |link| link.as_bytes().len());
            path.as_bytes().len() + link + names.sum::<usize>()
        }
        Event::Line(line) => line.path.as_bytes().len() + line.text.0.len(),
        _ => return None,
    };
    Some(texts as u64 + RESULT_BYTES)
}

fn limit(spec: &mut SearchSpec) -> usize {
    let most = spec.limits.results.min(u32::try_from(PAGE_MAX).unwrap_or(u32::MAX));
    spec.limits.results = most;
    most as usize
}
