//! HTTPS of the daemon: whether connections without it are answered, and the certificate that the
//! operator brings.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use dorm_authority::Authority;
use dorm_http::{Domains, Given, Plain, Tls};
use dorm_lifecycle::ProjectId;
use dorm_service::Service;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Options for HTTPS.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TlsOptions {
    /// A certificate chain in PEM for the domains given with --domain. With it, --listen may be an
    /// address that is not loopback, which then answers only to HTTPS. Read at the start
    #[arg(long, env = "DORM_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(long, env = "DORM_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsOptions {
    /// Refuses to send keys over a network without encryption.
    pub(crate) fn check(&self, listen: SocketAddr) -> Result<()> {
        if !listen.ip().is_loopback() && self.tls_cert.is_none() {
            bail!(
                "--listen {listen}: an address that is not loopback needs HTTPS; give a certificate with --tls-cert and \
                 --tls-key, or listen on loopback"
            );
        }
        Ok(())
    }

    /// The TLS side of a listener.
    pub(crate) fn open(&self, service: &Service, domains: &Domains, listen: SocketAddr) -> Result<Option<Tls>> {
        let Some(secret) = service.secret_of_hosts() else { return Ok(None) };
        let authority = Authority::derive(&secret, &ProjectId::local()).only_for(domains.names().to_vec());
        let files = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        let given = files.map(|(chain, key)| read(chain, key)).transpose()?;
        let plain = if listen.ip().is_loopback() { Plain::Answered } else { Plain::Refused };
        let tls = Tls::new(authority, Arc::new(domains.clone()), given, plain);
        let tls = tls.with_context(|| match files {
            Some((chain, key)) => {
                format!("cannot use --tls-key {} with --tls-cert {}", key.display(), chain.display())
            }
            None => "cannot prepare HTTPS".to_owned(),
        })?;
        Ok(Some(tls))
    }
}

fn read(chain: &Path, key: &Path) -> Result<Given> {
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read the certificates in {}", chain.display()))?;
    if certificates.is_empty() {
        bail!("{} has no certificate in PEM", chain.display());
    }
    let key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read the private key in {}", key.display()))?;
    Ok(Given { chain: certificates, key })
}
