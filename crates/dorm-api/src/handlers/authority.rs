//! The certificate authority of the daemon's own hosts.

use std::fmt::Write as _;

use axum::extract::State;
use dorm_api_types as wire;
use dorm_service::Code;

use crate::error::ApiError;
use crate::state::Api;

/// Get the certificate authority
///
/// The authority issues the certificates with which the daemon answers HTTPS on `localhost` and on
/// the hosts of ports. A client that trusts it reaches `https://8080-ID.localhost:7070`. The
/// certificate permits no other domains than those that are listed.
#[utoipa::path(get, path = "/v1/authority", operation_id = "getAuthority", tag = "daemon", responses(
    (status = 200, description = "The certificate, which is public.", body = wire::Authority),
    (status = "default", response = ApiError),
))]
pub(crate) async fn describe(State(api): State<Api>) -> Result<axum::Json<wire::Authority>, ApiError> {
    let tls = api.access.tls.as_ref().ok_or_else(|| {
        let detail = "this daemon has no key for secrets, and so no certificate authority";
        ApiError::not_found(detail, "use HTTP")
    })?;
    let (certificate, sum) = tls.certificate().map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "cannot make the certificate of the authority");
        ApiError::new(Code::Internal, error.to_string(), "please report this")
    })?;
    let sha256 = sum.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let domains = api.access.domains.names().to_vec();
    Ok(axum::Json(wire::Authority { certificate, sha256, domains }))
}
