//! TLS to a daemon, which is verified by the authorities of this host and by one that was named.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::ClientError;

/// Returns how a daemon is verified: by the authorities of this host, and those in the file `also`.
pub(super) fn config(also: Option<&Path>) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    // An authority that cannot be read verifies nobody; the error of the connection says so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = also {
        let failed =
            |source: Box<dyn std::error::Error + Send + Sync>| ClientError::Authority { path: path.to_owned(), source };
        let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = found.map_err(|error| failed(error.into()))?;
        if found.is_empty() {
            return Err(failed("it has no certificate in PEM".into()));
        }
        for certificate in found {
            roots.add(certificate).map_err(|error| failed(error.into()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|source| ClientError::Tls { source })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
