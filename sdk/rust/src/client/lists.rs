//! Lists: their order, and reading them page by page.

use reqwest::Method;
use serde::de::DeserializeOwned;

use super::{Client, ClientError};

/// How many items of a list are requested at once.
pub(super) const PAGE: &str = "1000";

/// The moment that a list of sandboxes is ordered by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SortBy {
    /// When it was created.
    #[default]
    Created,
    /// When it last began to run, by a start or a resume.
    Started,
}

impl SortBy {
    /// Its word in requests.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Started => "started",
        }
    }
}

/// The direction of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// The earliest first.
    #[default]
    Asc,
    /// The latest first.
    Desc,
}

impl Order {
    /// Its word in requests.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Asc => "asc",
            Self::Desc => "desc",
        }
    }
}

/// The sandboxes that a list has, and their order. The default is all of them, terminated ones
/// included, in the order of their creation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SandboxFilter {
    /// Their states, such as `running`. Default: any.
    pub states: Vec<String>,
    /// Name of the one to find. Default: any.
    pub name: Option<String>,
    /// Labels that they all have, as key and value. Default: any.
    pub labels: Vec<(String, String)>,
    /// The moment that they are ordered by.
    pub sort: SortBy,
    /// The direction.
    pub order: Order,
    /// How many to return. Default: all.
    pub most: Option<usize>,
}

impl SandboxFilter {
    /// The query of a request for one page.
    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = vec![("limit", PAGE.to_owned()), ("sort", self.sort.as_str().to_owned())];
        query.push(("order", self.order.as_str().to_owned()));
        if !self.states.is_empty() {
            query.push(("state", self.states.join(",")));
        }
        query.extend(self.name.iter().map(|name| ("name", name.clone())));
        query.extend(self.labels.iter().map(|(key, value)| ("label", format!("{key}={value}"))));
        query
    }
}

impl Client {
    /// Every item of a list, read page by page.
    pub(super) async fn pages<P: DeserializeOwned, T>(
        &self,
        path: &str,
        query: &[(&str, String)],
        of: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, ClientError> {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut request = self.request(Method::GET, path).query(query).query(&[("limit", PAGE)]);
            if let Some(cursor) = &after {
                request = request.query(&[("after", cursor)]);
            }
            let (items, next) = of(self.read(request).await?);
            found.extend(items);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }
}
