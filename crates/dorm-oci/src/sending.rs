//! Requests with retries: a registry that is busy, restarting or limiting requests is asked again.

use std::time::Duration;

use dorm_ports::{RegistryError, RegistryOperation};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::Config;

/// Why an attempt failed, and whether to retry.
pub(crate) enum Failed {
    /// Permanently.
    Final(RegistryError),
    /// Temporarily, with the pause requested by the registry, if any.
    Passing(RegistryError, Option<Duration>),
}

/// The registry and the operation, for errors.
#[derive(Clone, Debug)]
pub(crate) struct Whom {
    pub(crate) registry: String,
    pub(crate) name: RegistryOperation,
}

impl Whom {
    pub(crate) fn unreachable(&self, error: reqwest::Error) -> RegistryError {
        RegistryError::Unreachable {
            registry: self.registry.clone(),
            name: self.name.clone(),
            source: Box::new(error.without_url()),
        }
    }

    pub(crate) fn lies(&self, what: impl Into<String>) -> RegistryError {
        RegistryError::Lies { registry: self.registry.clone(), name: self.name.clone(), what: what.into() }
    }

    fn refused(&self, status: StatusCode, said: &str) -> RegistryError {
        let what = format!("{status}{}", if said.is_empty() { String::new() } else { format!(" ({said})") });
        RegistryError::Refused { registry: self.registry.clone(), name: self.name.clone(), what }
    }
}

/// The pauses between attempts.
pub(crate) struct Tries<'a> {
    config: &'a Config,
    pub(crate) done: u32,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(config: &'a Config) -> Self {
        Self { config, done: 0 }
    }

    /// Resets the count after an attempt with progress.
    pub(crate) fn start_again(&mut self) {
        self.done = 0;
    }

    /// Waits until the next attempt. Returns the error if there is none.
    pub(crate) async fn next(&mut self, failed: Failed) -> Result<(), RegistryError> {
        let (error, after) = match failed {
            Failed::Final(error) => return Err(error),
            Failed::Passing(error, after) => (error, after),
        };
        self.done += 1;
        if self.done >= self.config.tries || after.is_some_and(|after| after > self.config.patience) {
            return Err(error);
        }
        let pause = self.config.pause.saturating_mul(1 << (self.done - 1).min(10));
        // The jitter spreads clients that were rejected at the same time.
        let pause = pause.min(self.config.patience).mul_f64(0.75 + fastrand::f64() / 2.0);
        tracing::debug!(error = %error, tries = self.done, "retrying a request to a registry");
        tokio::time::sleep(after.unwrap_or(pause)).await;
        Ok(())
    }
}

/// Classifies a response. `401` is not an error here.
pub(crate) async fn sort(response: Response, whom: &Whom) -> Result<Response, Failed> {
    let status = response.status();
    if status.is_success() || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::RANGE_NOT_SATISFIABLE) {
        return Ok(response);
    }
    let (registry, name) = (whom.registry.clone(), whom.name.clone());
    let after = retry_after(response.headers());
    let said = said(response).await;
    Err(match status {
        StatusCode::TOO_MANY_REQUESTS => Failed::Passing(RegistryError::RateLimited { registry, name, after }, after),
        StatusCode::NOT_FOUND => {
            let what = if said.is_empty() { status.to_string() } else { said };
            Failed::Final(RegistryError::NotFound { registry, name, what })
        }
        StatusCode::FORBIDDEN => {
            let what = if said.is_empty() { status.to_string() } else { said };
            Failed::Final(RegistryError::Unauthorized { registry, name, what })
        }
        status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            Failed::Passing(whom.refused(status, &said), after)
        }
        status => Failed::Final(whom.refused(status, &said)),
    })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}

/// Returns the first error in a response, in the format that registries use.
pub(crate) async fn said(response: Response) -> String {
    let Ok(text) = body(response, 64 << 10).await else { return String::new() };
    let parsed: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let first = &parsed["errors"][0];
    let words: Vec<_> =
        [&first["code"], &first["message"], &parsed["details"]].into_iter().filter_map(|word| word.as_str()).collect();
    words.join(": ").chars().take(300).collect::<String>().escape_debug().to_string()
}

/// Returns the whole body, if it is not longer than `most`.
pub(crate) async fn body(mut response: Response, most: usize) -> Result<Vec<u8>, BodyError> {
    let mut content = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyError::Broken)? {
        if content.len() + chunk.len() > most {
            return Err(BodyError::TooLong);
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}

/// Why a body could not be read.
pub(crate) enum BodyError {
    TooLong,
    Broken(reqwest::Error),
}
