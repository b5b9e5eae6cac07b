//! Decides whether a request is for the control API or for a port of a sandbox, and which.
//!
//! Clients name sandbox and port with two headers, or with the first label of the host. A URL of a
//! file with a signature names neither: its signature tells the sandbox.

use axum::extract::{Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use dorm_http::Target;

use crate::door::E2b;
use crate::error::Refusal;
use crate::{control, envd, ports};

const SANDBOX: HeaderName = HeaderName::from_static("e2b-sandbox-id");
const PORT: HeaderName = HeaderName::from_static("e2b-sandbox-port");

/// Answers a request.
pub(crate) async fn dispatch(State(door): State<E2b>, request: Request) -> Response {
    let host = dorm_http::host(request.headers(), request.uri());
    if !door.access.domains.answer_to(host) {
        let message = format!("this server does not serve the host '{host}'; name it with `dorm serve --domain`");
        return Refusal::new(StatusCode::MISDIRECTED_REQUEST, message).into_response();
    }
    match target(&door, host, request.headers()) {
        Err(answer) => *answer,
        Ok(Some(target)) if target.port == envd::PORT => envd::answer(&door, target.sandbox, request).await,
        Ok(Some(target)) => ports::answer(&door, target, request).await,
        Ok(None) if envd::is_signed_file(&request) => envd::answer_signed(&door, request).await,
        Ok(None) => control::answer(&door, request).await,
    }
}

/// The port of a sandbox that a request is for; `None` if it names none.
fn target(door: &E2b, host: &str, headers: &HeaderMap) -> Result<Option<Target>, Box<Response>> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?").to_owned());
    match (text(&SANDBOX), text(&PORT)) {
        (None, None) => match door.access.domains.label(host).as_deref().and_then(|label| label.split_once('-')) {
            Some((port, sandbox)) => named(sandbox, port).map(Some),
            None => Ok(None),
        },
        (Some(sandbox), Some(port)) => named(&sandbox, &port).map(Some),
        (None, Some(_)) => Err(invalid("the header E2b-Sandbox-Id is missing".to_owned())),
        (Some(_), None) => Err(invalid("the header E2b-Sandbox-Port is missing".to_owned())),
    }
}

/// A port of a sandbox, as text. Anything can be an id: one that no sandbox can have is the id of
/// none.
fn named(sandbox: &str, port: &str) -> Result<Target, Box<Response>> {
    let number = port.parse().ok().filter(|port| *port != 0);
    let no_port = || invalid(format!("'{port}' is not a port: ports are 1 to 65535"));
    let port = number.ok_or_else(no_port)?;
    match control::sandbox_id(sandbox) {
        Some(sandbox) => Ok(Target { sandbox, port }),
        None if is_word(sandbox) => Err(Box::new(ports::absent(sandbox))),
        None => Err(invalid(format!("'{sandbox}' is not the id of a sandbox"))),
    }
}

fn invalid(message: String) -> Box<Response> {
    Box::new(Refusal::invalid(message).into_response())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
