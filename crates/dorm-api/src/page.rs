//! Pages of lists: `after` and `limit` in the query, `next` in the response.

use std::fmt;
use std::str::FromStr;

use dorm_lifecycle::Timestamp;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::extract::page_limit;

/// The query of a list without filters.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Largest number of items to return, 1 to 1000. Default 100.
    limit: Option<usize>,
}

impl PageQuery {
    /// The requested page of `all`, in the order of their cursors, and the cursor of the next page.
    pub(crate) fn of<T, C>(
        self,
        mut all: Vec<T>,
        cursor_of: impl Fn(&T) -> C,
    ) -> Result<(Vec<T>, Option<String>), ApiError>
    where
        C: Ord + FromStr + fmt::Display,
    {
        let limit = page_limit(self.limit)?;
        let after = self.after.as_deref().map(cursor::<C>).transpose()?;
        all.retain(|one| after.as_ref().is_none_or(|after| cursor_of(one) > *after));
        all.sort_by_cached_key(&cursor_of);
        let more = all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| more).map(|last| cursor_of(last).to_string());
        Ok((all, next))
    }
}

/// Parses a cursor from a query.
pub(crate) fn cursor<C: FromStr>(text: &str) -> Result<C, ApiError> {
    text.parse().map_err(|_| {
        ApiError::invalid(format!("after is '{text}', which is not a cursor"), "use `next` of the previous page")
    })
}

/// The cursor of a list that is ordered by time, then by id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Dated<I>(pub(crate) Timestamp, pub(crate) I);

impl<I: fmt::Display> fmt::Display for Dated<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.as_millis(), self.1)
    }
}

/// The text is not a cursor.
#[derive(Debug)]
pub(crate) struct NotACursor;

impl<I: FromStr> FromStr for Dated<I> {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let (time, id) = text.split_once('-').ok_or(NotACursor)?;
        let time = time.parse().map_err(|_| NotACursor)?;
        Ok(Self(Timestamp::from_millis(time), id.parse().map_err(|_| NotACursor)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(all: &[u32], after: Option<&str>, limit: usize) -> (Vec<u32>, Option<String>) {
        let query = PageQuery { after: after.map(str::to_owned), limit: Some(limit) };
        query.of(all.to_vec(), |one| *one).unwrap()
    }

    #[test]
    fn pages_follow_each_other_also_when_items_go_and_come() {
        assert_eq!(page(&[3, 1, 2], None, 2), (vec![1, 2], Some("2".to_owned())));
        assert_eq!(page(&[3, 1], Some("2"), 2), (vec![3], None));
        assert_eq!(page(&[1, 2], None, 2), (vec![1, 2], None));
        assert_eq!(page(&[], Some("2"), 2), (vec![], None));
        let wrong = PageQuery { after: Some("x".to_owned()), limit: None };
        assert!(wrong.of(vec![1_u32], |one| *one).is_err());
    }

    #[test]
    fn a_dated_cursor_is_read_as_it_is_written() {
        let cursor = Dated(Timestamp::from_millis(1_795_339_800_125), 7_u32);
        assert_eq!(cursor.to_string(), "1795339800125-7");
        assert_eq!(cursor.to_string().parse::<Dated<u32>>().unwrap(), cursor);
        for text in ["", "7", "x-7", "1-x"] {
            assert!(text.parse::<Dated<u32>>().is_err(), "{text}");
        }
    }
}
