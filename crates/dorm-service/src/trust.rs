//! Trust in the certificate authority of a sandbox's project, inside the sandbox. The proxy that
//! carries out header rules answers with certificates of this authority.
//!
//! ```text
//! /run/dormouse/ca.pem         the authority's certificate
//! /run/dormouse/ca-bundle.pem  the roots that the image trusts, and this certificate
//! SSL_CERT_FILE=…              in the environment of new processes
//! ```
//!
//! Only the certificate comes into the sandbox, never its key. Files of the image are not changed,
//! so nothing that starts from a filesystem snapshot trusts the authority by that.

use std::convert::Infallible;

use bytes::Bytes;
use dorm_agent_client::{Agent, AgentError, GuestPath, Parents, ProcessSpec, Variable, WriteOptions};
use dorm_lifecycle::{RunId, Sandbox, SandboxId};
use futures_util::StreamExt as _;

use crate::error::{ServiceError, chain};
use crate::shared::{Service, Shared};

const CERTIFICATE: &str = "/run/dormouse/ca.pem";
const BUNDLE: &str = "/run/dormouse/ca-bundle.pem";

/// The variables by which programs find certificates, each with the file that it names: the bundle
/// in place of the roots of the image, or the certificate in addition to those of the program.
const VARIABLES: [(&str, &str); 10] = [
    ("SSL_CERT_FILE", BUNDLE),
    ("CURL_CA_BUNDLE", BUNDLE),
    ("REQUESTS_CA_BUNDLE", BUNDLE),
    ("PIP_CERT", BUNDLE),
    ("GIT_SSL_CAINFO", BUNDLE),
    ("CARGO_HTTP_CAINFO", BUNDLE),
    ("AWS_CA_BUNDLE", BUNDLE),
    ("NIX_SSL_CERT_FILE", BUNDLE),
    ("NODE_EXTRA_CA_CERTS", CERTIFICATE),
    ("DENO_CERT", CERTIFICATE),
];

/// The files of roots in usual images.
const ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The largest file of roots that is read out of a sandbox.
const ROOTS_BYTES_MAX: u64 = 4 << 20;

/// The memory of a guest, as far as its trust is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// It had no processes yet, or its memory is its own.
    Own,
    /// Its memory is that of a snapshot, which may come from another project or host.
    Copied,
}

/// Makes a guest trust what it has to: the authority of its project if it has header rules, and no
/// other authority of Dormouse.
pub(crate) async fn establish(
    shared: &Shared,
    sandbox: &Sandbox,
    agent: &Agent,
    before: Before,
) -> Result<(), ServiceError> {
    let is_wanted = !sandbox.spec.egress.headers().is_empty();
    if !is_wanted && before == Before::Own {
        return Ok(());
    }
    let present = read(agent, CERTIFICATE).await?;
    // Deriving the authority takes milliseconds.
    if !is_wanted && present.is_none() {
        return Ok(());
    }
    let Some(authority) = shared.authority(&sandbox.project) else { return Ok(()) };
    let certificate = authority.certificate().map_err(|error| ServiceError::Authority(Box::new(error)))?;
    let is_own = present.as_deref() == Some(certificate.as_bytes());
    // Without rules, a certificate of the project may stay: running programs may use it.
    if is_own {
        return Ok(());
    }
    let roots = roots(shared, sandbox, agent).await?;
    let own = if is_wanted { certificate.as_bytes() } else { b"" };
    let bundle = [&roots, b"\n".as_slice(), own].concat();
    write(agent, BUNDLE, bundle.into()).await?;
    // Last: its presence says that the bundle is complete.
    write(agent, CERTIFICATE, Bytes::copy_from_slice(own)).await
}

/// A guest can make that impossible, with files of other kinds or a full disk. It wakes even so:
/// only its requests through header rules fail.
pub(crate) fn unless_over(run: &RunId, established: Result<(), ServiceError>) -> Result<(), ServiceError> {
    match established {
        Err(ServiceError::Agent(error)) if !matches!(error, AgentError::Closed { .. }) => {
            tracing::warn!(%run, error = %chain(&error), "cannot give a sandbox the certificate of its project's authority");
            Ok(())
        }
        other => other,
    }
}

/// Returns the roots that the image trusts; those of the host if it has none.
async fn roots(shared: &Shared, sandbox: &Sandbox, agent: &Agent) -> Result<Vec<u8>, ServiceError> {
    let config = shared.image_config(&sandbox.spec.image).await;
    let named = config.variables().find(|(name, _)| *name == "SSL_CERT_FILE").map(|(_, path)| path);
    for path in named.into_iter().chain(ROOTS) {
        if let Some(found) = read(agent, path).await?.filter(|found| !found.is_empty()) {
            return Ok(found);
        }
    }
    Ok(shared.settings.roots.as_deref().unwrap_or_default().as_bytes().to_vec())
}

/// Returns the content of a file; `None` if there is none that can be used.
async fn read(agent: &Agent, path: &str) -> Result<Option<Vec<u8>>, ServiceError> {
    let Ok(path) = GuestPath::try_from(path) else { return Ok(None) };
    let mut stream = match agent.read_file(&path, 0, Some(ROOTS_BYTES_MAX)).await {
        Ok((_, stream)) => stream,
        Err(error) => return unusable(error),
    };
    let mut content = Vec::new();
    while let Some(bytes) = stream.next().await {
        match bytes {
            Ok(bytes) => content.extend_from_slice(&bytes),
            Err(error) => return unusable(error),
        }
    }
    Ok(Some(content))
}

/// A guest can make a file of any kind there, which must not keep it from waking.
fn unusable(error: AgentError) -> Result<Option<Vec<u8>>, ServiceError> {
    match error {
        AgentError::Closed { .. } => Err(error.into()),
        _ => Ok(None),
    }
}

async fn write(agent: &Agent, path: &str, content: Bytes) -> Result<(), ServiceError> {
    let Ok(path) = GuestPath::try_from(path) else { return Ok(()) };
    let options = WriteOptions { mode: Some(0o644), owner: None, parents: Parents::Create };
    let body = futures_util::stream::iter([Ok::<_, Infallible>(content)]);
    agent.write_file(&path, options, body).await?;
    Ok(())
}

impl Service {
    /// Returns the process with the variables that make programs trust the authority of the
    /// project, if the sandbox has header rules. Variables that the user has set stay.
    pub async fn with_trust(&self, id: &SandboxId, spec: ProcessSpec) -> Result<ProcessSpec, ServiceError> {
        Ok(with_trust(&self.record(id).await?.sandbox, spec))
    }
}

pub(crate) fn with_trust(sandbox: &Sandbox, mut spec: ProcessSpec) -> ProcessSpec {
    if sandbox.spec.egress.headers().is_empty() {
        return spec;
    }
    let set = |name: &str| {
        let of_sandbox = [&sandbox.spec.variables, &sandbox.spec.secrets];
        of_sandbox.iter().any(|variables| variables.0.contains_key(name))
            || spec.variables.iter().any(|variable| variable.name().as_bytes() == name.as_bytes())
    };
    let missing: Vec<_> = VARIABLES.iter().filter(|(name, _)| !set(name)).collect();
    spec.variables.extend(missing.into_iter().filter_map(|(name, path)| Variable::new(*name, *path).ok()));
    spec
}
