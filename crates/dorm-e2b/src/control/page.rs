//! Pages of a list: their size, and the cursor of the next one.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, Uri};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use crate::error::Refusal;
use crate::text::{number, parameter};

/// The cursor of the next page; absent on the last one.
const NEXT_TOKEN: HeaderName = HeaderName::from_static("x-next-token");
/// The largest page.
pub(super) const PAGE_MAX: usize = 100;

/// The size of the page that a request asks for; `None` if it names none.
pub(super) fn limit(uri: &Uri) -> Result<Option<usize>, Refusal> {
    let limit = number(uri, "limit")?;
    match limit {
        Some(limit) if !(1..=PAGE_MAX).contains(&limit) => {
            Err(Refusal::invalid(format!("limit is {limit}: it must be 1 to {PAGE_MAX}")))
        }
        limit => Ok(limit),
    }
}

/// The place after which the page begins that a request asks for, as `read` finds it in the cursor;
/// `None` for the first page.
pub(super) fn after<T>(uri: &Uri, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Refusal> {
    let Some(token) = parameter(uri, "nextToken")?.filter(|token| !token.is_empty()) else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok();
    let place = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).and_then(|text| read(&text));
    let foreign =
        || Refusal::invalid(format!("nextToken '{token}' is not a cursor of this list: omit it to start anew"));
    place.map(Some).ok_or_else(foreign)
}

/// The answer with a page, and with the place after which the next one begins.
pub(super) fn response<T: Serialize>(items: &[T], next: Option<String>) -> Response {
    let mut response = Json(items).into_response();
    let next = next.and_then(|place| HeaderValue::from_str(&URL_SAFE_NO_PAD.encode(place)).ok());
    response.headers_mut().extend(next.map(|next| (NEXT_TOKEN, next)));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(query: &str) -> Uri {
        format!("/v2/templates?{query}").parse().unwrap()
    }

    #[test]
    fn a_page_has_1_to_100_items() {
        assert_eq!(limit(&uri("")).unwrap(), None);
        assert_eq!(limit(&uri("limit=100")).unwrap(), Some(100));
        for query in ["limit=0", "limit=101", "limit=-1", "limit=x"] {
            assert!(limit(&uri(query)).is_err(), "{query}");
        }
    }

    #[test]
    fn the_next_page_begins_at_the_place_that_a_response_names() {
        let sent = response(&["a"], Some("17__b".to_owned()));
        let token = sent.headers()[NEXT_TOKEN].to_str().unwrap();
        let read = |text: &str| text.strip_suffix("__b").map(str::to_owned);
        assert_eq!(after(&uri(&format!("nextToken={token}")), read).unwrap(), Some("17".to_owned()));
        assert_eq!(after(&uri("nextToken="), read).unwrap(), None);
        for query in ["nextToken=??", "nextToken=_w", "nextToken=YQ"] {
            assert!(after(&uri(query), read).is_err(), "{query}");
        }
        assert!(!response(&["a"], None).headers().contains_key(NEXT_TOKEN));
    }
}
