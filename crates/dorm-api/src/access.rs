//! Access control: the permission that each route needs, and the permissions that each key gives.
//!
//! Every route in the table of routes names its need, so that a new route cannot be open by
//! accident.

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::HeaderName;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use dorm_http::Credentials;
use dorm_lifecycle::{Caller, SandboxId, Wake};
use dorm_service::{ProjectProblem, Service, ServiceError};
use dorm_store::KeyScope;

use crate::error::{ApiError, ErrorCode};
use crate::extract::{Scoped, UsesNames, only, parameter};
use crate::state::{Api, DOOR};

/// The permission that a route needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// None: the route needs no key.
    Nothing,
    /// Read everything of a project.
    View,
    /// Read the sandbox in the path.
    ViewOne,
    /// Change everything of a project.
    Change,
    /// Change the sandbox in the path.
    ChangeOne,
    /// Read what belongs to no project.
    Inspect,
    /// Change what belongs to no project.
    Administer,
}

/// Whether credentials meet a need. `is_its_own`: whether the path names the one sandbox of the
/// key.
fn meet(credentials: &Credentials, need: Need, is_its_own: bool) -> bool {
    match (need, &credentials.scope) {
        (Need::Nothing, _) => true,
        (Need::Inspect, KeyScope::Full | KeyScope::ReadOnly) | (Need::Administer, KeyScope::Full) => {
            credentials.is_of_daemon()
        }
        (Need::View | Need::ViewOne | Need::Change | Need::ChangeOne, KeyScope::Full) => true,
        (Need::View | Need::ViewOne, KeyScope::ReadOnly) => true,
        (Need::ViewOne | Need::ChangeOne, KeyScope::Sandbox(_)) => is_its_own,
        (Need::Change | Need::ChangeOne | Need::Administer, KeyScope::ReadOnly) => false,
        (Need::View | Need::Change | Need::Inspect | Need::Administer, KeyScope::Sandbox(_)) => false,
    }
}

/// The header with which an administrator chooses the project of a request.
pub(crate) const PROJECT: HeaderName = HeaderName::from_static("x-dormouse-project");

/// The method and path of every route, with its need.
pub(crate) type Needs = &'static [(&'static str, &'static str, Need)];

/// The state of [`check`].
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) api: Api,
    pub(crate) needs: Needs,
}

/// Passes a request on if its key permits its route, with the service of its project.
pub(crate) async fn check(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Gate { api, needs } = gate;
    let need = need_of(needs, &request);
    if need == Need::Nothing {
        return next.run(request).await;
    }
    let Some(credentials) = api.access.credentials(request.extensions(), request.headers()) else {
        let detail = "an API key is required, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'";
        let hint = "the key of the daemon is in the file `key` of its data directory";
        return ApiError::new(ErrorCode::Unauthorized, detail, hint).into_response();
    };
    match scoped(&api, request, need, &credentials).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Returns the request with the service of its project, if the credentials permit it.
async fn scoped(api: &Api, request: Request, need: Need, credentials: &Credentials) -> Result<Request, ApiError> {
    let (mut parts, body) = request.into_parts();
    let service = service(api, &parts.headers, credentials)?;
    parts.extensions.insert(credentials.holder.clone());
    parts.extensions.insert(Scoped(service.clone()));
    parts.extensions.insert(UsesNames(meet(credentials, Need::Change, false)));
    let is_its_own = match &credentials.scope {
        KeyScope::Sandbox(own) => names(&mut parts, api, &service, own).await,
        KeyScope::Full | KeyScope::ReadOnly => false,
    };
    match meet(credentials, need, is_its_own) {
        true => Ok(Request::from_parts(parts, body)),
        false => Err(refusal(need, &credentials.scope)),
    }
}

/// The service for the project of a request.
fn service(api: &Api, headers: &HeaderMap, credentials: &Credentials) -> Result<Service, ApiError> {
    let project = match only(headers, &PROJECT)? {
        None => credentials.project.clone(),
        Some(named) if named == credentials.project.as_str() => credentials.project.clone(),
        Some(named) if credentials.is_of_daemon() && !matches!(credentials.scope, KeyScope::Sandbox(_)) => {
            named.parse().map_err(|_| ServiceError::from(ProjectProblem::Missing(named.to_owned())))?
        }
        Some(_) => {
            let detail = "this key is for another project than X-Dormouse-Project names";
            return Err(ApiError::new(ErrorCode::Forbidden, detail, "omit the header, or use a key of that project"));
        }
    };
    let caller = Caller { door: DOOR, credential: credentials.credential() };
    let service = api.access.daemon.for_project(&project)?.as_caller(Some(caller));
    Ok(match credentials.scope {
        // To wake a sandbox is to change it.
        KeyScope::ReadOnly => service.waking(Wake::Never),
        KeyScope::Full | KeyScope::Sandbox(_) => service,
    })
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
async fn names(parts: &mut Parts, api: &Api, service: &Service, sandbox: &SandboxId) -> bool {
    let Ok(named) = parameter(parts, api, "id").await else { return false };
    service.find(&named).await.is_ok_and(|found| found == *sandbox)
}

/// The same refusal whether or not the named object exists: such a key learns nothing of other
/// sandboxes.
fn refusal(need: Need, scope: &KeyScope) -> ApiError {
    let detail = match (scope, need) {
        (KeyScope::Sandbox(sandbox), _) => format!("this key gives access to sandbox {sandbox} only"),
        (KeyScope::Full | KeyScope::ReadOnly, Need::Inspect | Need::Administer) => {
            let detail = "this request concerns the whole daemon, and this key is for a project";
            let hint = "use the key of the daemon, or a key of the project 'local' with full access";
            return ApiError::new(ErrorCode::Forbidden, detail, hint);
        }
        (KeyScope::ReadOnly, _) => "this key is read-only".to_owned(),
        (KeyScope::Full, _) => "this key does not permit the request".to_owned(),
    };
    ApiError::new(ErrorCode::Forbidden, detail, "use a key with full access, or ask the owner of the daemon for one")
}

#[cfg(test)]
mod tests {
    use dorm_http::Holder;

    use super::*;

    #[test]
    fn a_key_opens_what_its_scope_has_and_nothing_else() {
        let one = KeyScope::Sandbox(SandboxId::from_random([1; 20]));
        let needs =
            [Need::Nothing, Need::View, Need::ViewOne, Need::Change, Need::ChangeOne, Need::Inspect, Need::Administer];
        for (scope, project, is_its_own, expected) in [
            (&KeyScope::Full, "local", false, [true; 7]),
            (&KeyScope::Full, "tenant", false, [true, true, true, true, true, false, false]),
            (&KeyScope::ReadOnly, "local", false, [true, true, true, false, false, true, false]),
            (&KeyScope::ReadOnly, "tenant", false, [true, true, true, false, false, false, false]),
            (&one, "local", true, [true, false, true, false, true, false, false]),
            (&one, "local", false, [true, false, false, false, false, false, false]),
        ] {
            let project = project.parse().unwrap();
            let key = Credentials { scope: scope.clone(), project, holder: Holder::OwnerKey };
            assert_eq!(needs.map(|need| meet(&key, need, is_its_own)), expected, "{key:?} {is_its_own}");
        }
    }
}
