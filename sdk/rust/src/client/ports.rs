//! Ports of sandboxes.

use bytes::Bytes;
use dorm_api_types as wire;
use reqwest::Method;

use super::path::sandbox as of;
use super::{Client, ClientError};

/// The response of a program behind a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers, with their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

impl PortResponse {
    /// Returns the body as text, with replacement characters for what is not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    /// Returns how to reach a port of a sandbox.
    pub async fn port(&self, sandbox: &str, port: u16) -> Result<wire::Port, ClientError> {
        self.get(&of(sandbox, &format!("ports/{port}"))).await
    }

    /// Creates a link that opens a port in a browser, once.
    pub async fn port_link(&self, sandbox: &str, port: u16) -> Result<wire::PortLink, ClientError> {
        self.post(&of(sandbox, &format!("ports/{port}/link")), &wire::LinkRequest {}).await
    }

    /// Sends a request to the program behind a port, once and without the key of this client.
    pub(crate) async fn request_port(
        &self,
        headers: &[(&'static str, String)],
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<PortResponse, ClientError> {
        let url = format!("{}://{}/{}", self.door.scheme(), self.door.authority(), path.trim_start_matches('/'));
        let request =
            headers.iter().fold(self.http.request(method, url), |request, (name, value)| request.header(*name, value));
        let answer = request.body(body).send().await.map_err(|source| self.broken(source))?;
        let status = answer.status().as_u16();
        let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers: Vec<_> =
            answer.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        let body = answer.bytes().await.map_err(|source| self.broken(source))?;
        // Errors of the gateway have a form of their own; those of the program are its response.
        if status >= 400 && headers.iter().any(|(name, of)| name == "content-type" && of == "application/problem+json")
        {
            let refused = self.refused(status, &body, None);
            if matches!(&refused, ClientError::Refused { error, .. } if error.kind == format!("/errors/{}", error.code))
            {
                return Err(refused);
            }
        }
        Ok(PortResponse { status, headers, body })
    }
}
