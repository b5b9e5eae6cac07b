//! Lists of sandboxes, with filters and pages.

use axum::Json;
use axum::http::Uri;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{SandboxId, StateName, Timestamp};
use dorm_service::{SandboxView, Service};
use dorm_store::{Direction, SandboxFilter, SandboxOrder};
use percent_encoding::percent_decode_str;

use super::wire::ListedSandbox;
use super::{Call, page, show};
use crate::error::Refusal;
use crate::text::parameter;

const RUNNING: [StateName; 4] = [StateName::Pending, StateName::Running, StateName::Snapshotting, StateName::Resuming];
const PAUSED: [StateName; 2] = [StateName::Suspending, StateName::Suspended];

/// Answers a request for a page of sandboxes.
pub(super) async fn page(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let wanted = Wanted::read(request.uri())?;
    let (sandboxes, next) = wanted.find(&service).await?;
    Ok(page::response(&shown(&service, &sandboxes).await, next))
}

/// Answers a request of an earlier client for all running sandboxes.
pub(super) async fn running(call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let filter = SandboxFilter {
        project: Some(service.project().clone()),
        states: RUNNING.to_vec(),
        labels: metadata(request.uri())?,
        order: SandboxOrder::Started(Direction::Descending),
        ..SandboxFilter::default()
    };
    let sandboxes = service.list(&filter).await?;
    Ok(Json(shown(&service, &sandboxes).await).into_response())
}

async fn shown(service: &Service, sandboxes: &[SandboxView]) -> Vec<ListedSandbox> {
    let names = service.names_of_volumes(sandboxes).await;
    sandboxes.iter().map(|view| show::listed(view, &names)).collect()
}

/// A page as a request asks for it.
struct Wanted {
    filter: SandboxFilter,
    direction: Direction,
    started_after: Option<Timestamp>,
    template: Option<String>,
    limit: usize,
}

impl Wanted {
    fn read(uri: &Uri) -> Result<Self, Refusal> {
        let direction = match parameter(uri, "order")?.as_deref() {
            None | Some("" | "desc") => Direction::Descending,
            Some("asc") => Direction::Ascending,
            Some(other) => return Err(Refusal::invalid(format!("order is '{other}': it must be asc or desc"))),
        };
        let limit = page::limit(uri)?.unwrap_or(page::PAGE_MAX);
        let started_after = parameter(uri, "startedAfter")?.map(|text| moment(&text)).transpose()?;
        let mut filter = SandboxFilter {
            states: states(uri)?,
            labels: metadata(uri)?,
            order: SandboxOrder::Started(direction),
            ..SandboxFilter::default()
        };
        if let Some((at, id)) = page::after(uri, |place| read_place(place, direction))? {
            (filter.after_moment, filter.after) = (at, Some(id));
        }
        let template = parameter(uri, "template")?.filter(|template| !template.is_empty());
        Ok(Self { filter, direction, started_after, template, limit })
    }

    /// Returns the sandboxes of the page and the place after which the next one begins. Reads pages
    /// of the service until enough of their sandboxes match what the service cannot select by.
    async fn find(mut self, service: &Service) -> Result<(Vec<SandboxView>, Option<String>), Refusal> {
        let mut found: Vec<SandboxView> = Vec::new();
        loop {
            self.filter.limit = page::PAGE_MAX;
            let page = service.page(&self.filter).await?;
            let (is_last, next) = (page.next.is_none(), page.next);
            for view in page.sandboxes {
                if self.is_past(&view) {
                    return Ok((found, None));
                }
                if !self.matches(&view) {
                    continue;
                }
                if found.len() == self.limit {
                    let next = found.last().map(|last| self.place_of(last));
                    return Ok((found, next));
                }
                found.push(view);
            }
            match next {
                Some((at, id)) if !is_last => (self.filter.after_moment, self.filter.after) = (at, Some(id)),
                _ => return Ok((found, None)),
            }
        }
    }

    fn started(&self, view: &SandboxView) -> Timestamp {
        SandboxOrder::Started(self.direction).moment(&view.sandbox)
    }

    /// Whether nothing that follows in the list can match.
    fn is_past(&self, view: &SandboxView) -> bool {
        let is_earlier = self.started_after.is_some_and(|after| self.started(view) < after);
        self.direction == Direction::Descending && is_earlier
    }

    fn matches(&self, view: &SandboxView) -> bool {
        let is_late = self.started_after.is_none_or(|after| self.started(view) >= after);
        let is_of_template = self.template.as_ref().is_none_or(|wanted| {
            let (template, alias) = show::template_of(view);
            template == *wanted || alias.is_some_and(|alias| alias.split(':').next() == Some(wanted))
        });
        is_late && is_of_template
    }

    fn place_of(&self, last: &SandboxView) -> String {
        let asc = if self.direction == Direction::Ascending { "__asc" } else { "" };
        let at = self.started(last).as_millis();
        format!("{at}__{}{asc}", last.sandbox.id)
    }
}

/// Reads a place in a list of this direction; `None` for one of the other direction.
fn read_place(text: &str, direction: Direction) -> Option<(Timestamp, SandboxId)> {
    let mut parts = text.split("__");
    let at = Timestamp::from_millis(parts.next()?.parse().ok()?);
    let id = parts.next()?.parse().ok()?;
    let is_of = match direction {
        Direction::Ascending => parts.next() == Some("asc"),
        Direction::Descending => true,
    };
    (is_of && parts.next().is_none()).then_some((at, id))
}

fn moment(text: &str) -> Result<Timestamp, Refusal> {
    let at: jiff::Timestamp =
        text.parse().map_err(|_| Refusal::invalid(format!("startedAfter is '{text}', not a time in RFC 3339")))?;
    Ok(Timestamp::from_millis(u64::try_from(at.as_millisecond()).unwrap_or(0)))
}

fn states(uri: &Uri) -> Result<Vec<StateName>, Refusal> {
    let Some(text) = parameter(uri, "state")?.filter(|text| !text.is_empty()) else {
        return Ok([RUNNING.as_slice(), &PAUSED].concat());
    };
    let mut states = Vec::new();
    for word in text.split(',') {
        match word {
            "running" => states.extend(RUNNING),
            "paused" => states.extend(PAUSED),
            other => return Err(Refusal::invalid(format!("state '{other}' is neither running nor paused"))),
        }
    }
    Ok(states)
}

/// The metadata to select by. Clients encode each key and value, join them as a form, and encode
/// that text as a whole once more.
pub(crate) fn metadata(uri: &Uri) -> Result<Vec<(String, String)>, Refusal> {
    let Some(text) = parameter(uri, "metadata")?.filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
    let invalid = || Refusal::invalid("metadata is not an encoded list of KEY=VALUE");
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| invalid());
    let whole = decoded(&text)?;
    whole
        .split('&')
        .map(|pair| {
            let (key, value) = pair.split_once('=').ok_or_else(invalid)?;
            Ok((decoded(&key.replace('+', " "))?, decoded(&value.replace('+', " "))?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(query: &str) -> Uri {
        format!("/v2/sandboxes?{query}").parse().unwrap()
    }

    #[test]
    fn metadata_is_decoded_three_times() {
        let found = metadata(&uri("metadata=a%252520b%3Dc%252526d")).unwrap();
        assert_eq!(found, [("a b".to_owned(), "c&d".to_owned())]);
        let found = metadata(&uri("metadata=env%3Ddev%26user%3Dann")).unwrap();
        assert_eq!(found.len(), 2);
        assert!(metadata(&uri("metadata=plain")).is_err());
        assert!(metadata(&uri("metadata=a%3D%2525ff")).is_err());
        assert!(metadata(&uri("")).unwrap().is_empty());
    }

    #[test]
    fn a_place_belongs_to_one_direction() {
        let id = SandboxId::from_random([1; 20]);
        let down = format!("17__{id}");
        let up = format!("17__{id}__asc");
        let expected = Some((Timestamp::from_millis(17), id));
        assert_eq!(read_place(&down, Direction::Descending), expected);
        assert_eq!(read_place(&up, Direction::Ascending), expected);
        assert_eq!(read_place(&down, Direction::Ascending), None);
        assert_eq!(read_place(&up, Direction::Descending), None);
        assert_eq!(read_place("??", Direction::Descending), None);
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        for query in ["limit=0", "limit=101", "limit=x", "order=up", "state=dead", "nextToken=x", "startedAfter=noon"] {
            assert!(Wanted::read(&uri(query)).is_err(), "{query}");
        }
        assert!(Wanted::read(&uri("limit=100&order=asc&state=running%2Cpaused")).is_ok());
    }
}
