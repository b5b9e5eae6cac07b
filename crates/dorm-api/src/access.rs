//! Access control: the permission that each route needs, and the permissions that each key gives.
//!
//! Every route in the table of routes names its need, so that a new route cannot be open by
//! accident.

use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::SandboxId;
use dorm_store::KeyScope;
use sha2::{Digest as _, Sha256};

use crate::connections::Standing;
use crate::door::{Caller, Door};
use crate::error::{ApiError, ErrorCode};
use crate::extract::parameter;
use crate::state::Api;

/// The permission that a route needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// None: the route needs no key.
    Nothing,
    /// Read everything.
    View,
    /// Read the sandbox in the path.
    ViewOne,
    /// Change everything.
    Change,
    /// Change the sandbox in the path.
    ChangeOne,
}

impl Need {
    /// Whether a key with `scope` meets it. `is_its_own`: whether the path names the one sandbox of
    /// the key.
    fn is_met_by(self, scope: &KeyScope, is_its_own: bool) -> bool {
        match (self, scope) {
            (Self::Nothing, _) | (_, KeyScope::Full) => true,
            (Self::View | Self::ViewOne, KeyScope::ReadOnly) => true,
            (Self::ViewOne | Self::ChangeOne, KeyScope::Sandbox(_)) => is_its_own,
            (Self::Change | Self::ChangeOne, KeyScope::ReadOnly) => false,
            (Self::View | Self::Change, KeyScope::Sandbox(_)) => false,
        }
    }
}

/// The method and path of every route, with its need.
pub(crate) type Needs = &'static [(&'static str, &'static str, Need)];

/// The state of [`check`].
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) api: Api,
    pub(crate) needs: Needs,
}

/// Passes a request on if its key permits its route.
pub(crate) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Gate { api, needs } = gate;
    let need = need_of(needs, &request);
    if need == Need::Nothing {
        return next.run(request).await;
    }
    let scope = match request.extensions().get::<Door>() {
        Some(Door::Owner) => Some((KeyScope::Full, Caller::Owner)),
        Some(Door::Network(ticket)) => api.scope(request.headers()).inspect(|_| {
            ticket.stand(Standing::Known);
        }),
        None => api.scope(request.headers()),
    };
    let Some((scope, caller)) = scope else {
        let detail = "an API key is required, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'";
        let hint = "the key of the daemon is in the file `key` of its data directory";
        return ApiError::new(ErrorCode::Unauthorized, detail, hint).into_response();
    };
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(caller);
    let is_its_own = match &scope {
        KeyScope::Sandbox(own) => names(&mut parts, &api, own).await,
        KeyScope::Full | KeyScope::ReadOnly => false,
    };
    if !need.is_met_by(&scope, is_its_own) {
        return refusal(&scope).into_response();
    }
    next.run(Request::from_parts(parts, body)).await
}

/// The need of a request; the highest one if no route matches.
fn need_of(needs: Needs, request: &Request) -> Need {
    let Some(path) = request.extensions().get::<MatchedPath>() else { return Need::View };
    // A HEAD request is answered as a GET without its body.
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let is_it = |(known, route, _): &&(&str, &str, Need)| {
        known.eq_ignore_ascii_case(method.as_str()) && *route == path.as_str()
    };
    needs.iter().find(is_it).map_or(Need::Change, |(_, _, need)| *need)
}

/// Whether the path of a request names this sandbox, by id or by name.
async fn names(parts: &mut Parts, api: &Api, sandbox: &SandboxId) -> bool {
    let Ok(named) = parameter(parts, api, "id").await else { return false };
    api.service.find(&named).await.is_ok_and(|found| found == *sandbox)
}

/// The same refusal whether or not the named object exists: such a key learns nothing of other
/// sandboxes.
fn refusal(scope: &KeyScope) -> ApiError {
    let detail = match scope {
        KeyScope::ReadOnly => "this key is read-only".to_owned(),
        KeyScope::Sandbox(sandbox) => format!("this key gives access to sandbox {sandbox} only"),
        KeyScope::Full => "this key does not permit the request".to_owned(),
    };
    ApiError::new(ErrorCode::Forbidden, detail, "use a key with another scope; `dorm key ls` lists the keys")
}

impl Api {
    /// The scope of a request's key, and whose it is; `None` without a known key.
    pub(crate) fn scope(&self, headers: &HeaderMap) -> Option<(KeyScope, Caller)> {
        if self.keys.admit(headers) {
            return Some((KeyScope::Full, Caller::Owner));
        }
        crate::keys::presented(headers).find_map(|key| {
            let scope = self.service.scope_of_key(key)?;
            Some((scope, Caller::Key(Sha256::digest(key).into())))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_what_its_scope_has_and_nothing_else() {
        let one = KeyScope::Sandbox(SandboxId::from_random([1; 20]));
        // Of nothing, view, view one, change, change one.
        let needs = [Need::Nothing, Need::View, Need::ViewOne, Need::Change, Need::ChangeOne];
        for (scope, is_its_own, expected) in [
            (&KeyScope::Full, false, [true, true, true, true, true]),
            (&KeyScope::ReadOnly, false, [true, true, true, false, false]),
            (&one, true, [true, false, true, false, true]),
            (&one, false, [true, false, false, false, false]),
        ] {
            assert_eq!(needs.map(|need| need.is_met_by(scope, is_its_own)), expected, "{scope:?} {is_its_own}");
        }
    }
}
