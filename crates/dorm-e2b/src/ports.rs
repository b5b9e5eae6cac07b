//! Requests for ports of a sandbox, and the answers of E2B's proxy when a port does not answer.

use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dorm_http::{PortError, Target};
use dorm_lifecycle::{PortAccess, SandboxId, StateName, Wake};
use dorm_service::{Code, Service, ServiceError};
use serde::Serialize;

use crate::door::E2b;
use crate::error::Refusal;
use crate::tokens;

/// The header with the token for `envd`.
pub(crate) const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
/// The header with the token for the ports of a sandbox.
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");
/// The same in the gateway of `dorm-http`.
const TOKEN: HeaderName = HeaderName::from_static("x-dormouse-token");

const MISSING: &str =
    "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing";
const INVALID: &str =
    "Sandbox is secured with traffic access token. Provided token in header 'e2b-traffic-access-token' is invalid";

/// An answer of the proxy, in the order of fields in which clients compare it.
#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "sandboxId")]
    sandbox: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    code: u16,
}

fn told(status: StatusCode, sandbox: &str, message: &str, port: Option<u16>) -> Response {
    (status, Json(Body { sandbox, message, port, code: status.as_u16() })).into_response()
}

/// Forwards a request to a port of a sandbox.
pub(crate) async fn answer(door: &E2b, target: Target, mut request: Request) -> Response {
    let service = match door.access.daemon.of_sandbox(&target.sandbox).await {
        Ok(service) => service,
        Err(error) => return unreachable(&target.sandbox, Some(target.port), error),
    };
    if let Err(refusal) = admit(&service, &target, &mut request).await {
        return refusal;
    }
    conceal(request.headers_mut(), |token| tokens::is_envd(&service, &target.sandbox, token));
    let (sandbox, port) = (target.sandbox.clone(), target.port);
    match door.gateway().forward(target, request).await {
        Ok(response) => response,
        Err(PortError::Silent(_)) => match gone(&service, &sandbox).await {
            Some(error) => unreachable(&sandbox, Some(port), error),
            None => closed(&sandbox, port),
        },
        Err(error) => of_port(&sandbox, port, error),
    }
}

/// Why a sandbox is not to be reached at all any more; `None` if its inside should answer.
pub(crate) async fn gone(service: &Service, sandbox: &SandboxId) -> Option<ServiceError> {
    match service.describe(sandbox).await {
        Ok(view) => match view.sandbox.state.name() {
            // The request fell into a suspend; the next one resumes the sandbox.
            StateName::Suspending | StateName::Suspended if view.sandbox.spec.wake != Wake::Never => {
                Some(ServiceError::StillWaking(sandbox.clone()))
            }
            state @ (StateName::Terminating | StateName::Terminated | StateName::Suspending | StateName::Suspended) => {
                Some(ServiceError::NotRunning { sandbox: sandbox.clone(), state })
            }
            StateName::Pending | StateName::Running | StateName::Snapshotting | StateName::Resuming => None,
        },
        Err(error) => Some(error),
    }
}

/// Checks the traffic token of a request to a private port, and passes it on in the gateway's own
/// header. The program inside gets neither.
async fn admit(service: &Service, target: &Target, request: &mut Request) -> Result<(), Response> {
    let terms = service.port_terms(&target.sandbox, target.port).await;
    let terms = terms.map_err(|error| unreachable(&target.sandbox, Some(target.port), error))?;
    let presented = request.headers_mut().remove(TRAFFIC_TOKEN);
    if terms.access == PortAccess::Public {
        return Ok(());
    }
    let Some(presented) = presented else { return Err(Refusal::new(StatusCode::FORBIDDEN, MISSING).into_response()) };
    if !service.is_port_token(&target.sandbox, presented.as_bytes()) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, INVALID).into_response());
    }
    request.headers_mut().insert(TOKEN, presented);
    Ok(())
}

/// Removes the token for `envd`, which clients of the code interpreter send to its port, too. With
/// it, a program inside would be root in its sandbox from outside.
fn conceal(headers: &mut HeaderMap, is_token: impl Fn(&[u8]) -> bool) {
    if headers.get_all(ACCESS_TOKEN).iter().any(|value| is_token(value.as_bytes())) {
        headers.remove(ACCESS_TOKEN);
    }
}

/// The answer for a sandbox that does not exist, was terminated, or is suspended and not to be
/// woken. Clients compare it to the letter.
pub(crate) fn absent(sandbox: &str) -> Response {
    told(StatusCode::BAD_GATEWAY, sandbox, "The sandbox was not found", None)
}

/// The answer for a port on which nothing listens.
fn closed(sandbox: &SandboxId, port: u16) -> Response {
    told(StatusCode::BAD_GATEWAY, sandbox.as_str(), "The sandbox is running but port is not open", Some(port))
}

/// The answer when the inside of a sandbox cannot be reached.
pub(crate) fn unreachable(sandbox: &SandboxId, port: Option<u16>, error: ServiceError) -> Response {
    let named = |status: StatusCode, message: &str| told(status, sandbox.as_str(), message, None);
    match &error {
        ServiceError::NoSandbox(_) => absent(sandbox.as_str()),
        ServiceError::NotRunning { state, .. } => match state {
            StateName::Suspended | StateName::Suspending | StateName::Terminating | StateName::Terminated => {
                absent(sandbox.as_str())
            }
            StateName::Pending | StateName::Running | StateName::Snapshotting | StateName::Resuming => {
                named(StatusCode::CONFLICT, "The sandbox is still transitioning. Try again in a moment.")
            }
        },
        ServiceError::StillWaking(_) | ServiceError::Busy { .. } => {
            named(StatusCode::CONFLICT, "The sandbox is still transitioning. Try again in a moment.")
        }
        _ => match (error.code(), port) {
            (Code::Gone, _) => absent(sandbox.as_str()),
            (Code::PortClosed, Some(port)) => closed(sandbox, port),
            _ => Refusal::of(sandbox, error).into_response(),
        },
    }
}

/// The answer to a connection for which there is no room.
pub(crate) fn crowded(sandbox: &SandboxId) -> Response {
    let message = "The sandbox has too many concurrent incoming connections";
    let mut response = told(StatusCode::TOO_MANY_REQUESTS, sandbox.as_str(), message, None);
    response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
    response
}

fn of_port(sandbox: &SandboxId, port: u16, error: PortError) -> Response {
    match error {
        PortError::Unreachable(error) => unreachable(sandbox, Some(port), error),
        PortError::Silent(_) => closed(sandbox, port),
        PortError::Private(_) => Refusal::new(StatusCode::FORBIDDEN, INVALID).into_response(),
        PortError::Crowded => crowded(sandbox),
        PortError::NoSandbox(_) => absent(sandbox.as_str()),
        PortError::WrongHost(_)
        | PortError::NoPort(_)
        | PortError::NameWithoutKey(_)
        | PortError::Connect
        | PortError::SpentLink
        | PortError::Wake
        | PortError::Header(_)
        | PortError::InvalidPath(_) => Refusal::invalid(error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(values: &[&'static str]) -> Vec<String> {
        let given = values.iter().map(|value| (ACCESS_TOKEN, HeaderValue::from_static(value)));
        let others = [("x-access", "ours"), ("authorization", "Bearer theirs")];
        let others = others.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers: HeaderMap = given.chain(others).collect();
        conceal(&mut headers, |token| token == b"ours");
        assert!(headers.contains_key("x-access") && headers.contains_key("authorization"));
        headers.get_all(ACCESS_TOKEN).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_token_of_envd_does_not_get_into_a_sandbox() {
        for (given, passed_on) in [
            (&["ours"][..], &[][..]),
            (&["theirs", "ours"], &[]),
            (&["ours", "ours"], &[]),
            (&["theirs"], &["theirs"]),
            (&["ours2", ""], &["ours2", ""]),
            (&[], &[]),
        ] {
            assert_eq!(kept(given), passed_on, "{given:?}");
        }
    }
}
