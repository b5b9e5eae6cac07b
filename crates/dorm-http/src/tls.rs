//! HTTPS: certificates for every host that this server answers to, made when a client first asks.
//!
//! The daemon's own authority issues them, so that hosts such as `8080-ID.localhost` need no set-up
//! but trust in that authority. Wildcards would not do: clients refuse one below a top-level
//! domain. A certificate that the operator brings is used for all other domains.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use dorm_authority::{Authority, AuthorityError, HostCertificate};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::hosts::{Domains, LOCAL};

/// The first byte of a connection that begins with a TLS handshake. No HTTP request begins with it.
pub(crate) const HANDSHAKE: u8 = 0x16;
/// The largest number of certificates that are kept.
const KEPT_MAX: usize = 1024;

/// Why HTTPS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate of the operator cannot be used.
    #[error("the private key is not that of the certificate, or its type is not supported")]
    Given(#[source] rustls::Error),
    /// The TLS library does not support what is asked of it.
    #[error("cannot prepare TLS")]
    Setup(#[source] rustls::Error),
}

/// Connections without TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plain {
    /// They are answered.
    Answered,
    /// They are refused: keys must not cross a network unencrypted.
    Refused,
}

/// The TLS side of a listener.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    authority: Authority,
    pub(crate) plain: Plain,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("authority", &self.authority).field("plain", &self.plain).finish_non_exhaustive()
    }
}

/// A certificate chain of the operator, with its key.
pub struct Given {
    /// The chain in DER, the certificate of the server first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its private key.
    pub key: PrivateKeyDer<'static>,
}

impl Tls {
    /// Certificates of `authority` for `localhost` and for every host of `domains` for which
    /// `given` is not used: it is used for all but `localhost`.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(
        authority: Authority,
        domains: Arc<Domains>,
        given: Option<Given>,
        plain: Plain,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let given = given.map(|Given { chain, key }| CertifiedKey::from_der(chain, key, &provider));
        let given = given.transpose().map_err(TlsError::Given)?.map(Arc::new);
        let certificates = Certificates {
            authority: authority.clone(),
            domains,
            given,
            provider: provider.clone(),
            kept: Mutex::default(),
        };
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsError::Setup)?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), authority, plain })
    }

    /// The certificate of the authority, which is public: in PEM, and the SHA-256 of its DER.
    ///
    /// # Errors
    /// None is known.
    pub fn certificate(&self) -> Result<(String, [u8; 32]), AuthorityError> {
        let pem = self.authority.certificate()?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes());
        let sum = der.map(|der| Sha256::digest(&der).into()).unwrap_or_default();
        Ok((pem, sum))
    }

    /// Shakes hands with a client.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        TlsAcceptor::from(self.config.clone()).accept(stream).await
    }
}

/// Finds the certificate for a client.
struct Certificates {
    authority: Authority,
    domains: Arc<Domains>,
    given: Option<Arc<CertifiedKey>>,
    provider: Arc<CryptoProvider>,
    /// The certificates that were made on this day.
    kept: Mutex<(u64, HashMap<String, Arc<CertifiedKey>>)>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let day = Authority::day(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        self.certificate(hello.server_name(), day)
    }
}

impl Certificates {
    /// The certificate for a host, or for a client that names none, as for an address.
    fn certificate(&self, host: Option<&str>, day: u64) -> Option<Arc<CertifiedKey>> {
        let Some(host) = host else {
            return self.given.clone().or_else(|| self.issued(LOCAL, day));
        };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if !self.domains.answer_to(&host) {
            return None;
        }
        match &self.given {
            Some(given) if !Domains::default().answer_to(&host) => Some(given.clone()),
            Some(_) | None => self.issued(&host, day),
        }
    }

    /// The certificate of the authority for a host.
    fn issued(&self, host: &str, day: u64) -> Option<Arc<CertifiedKey>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (of_day, certificates) = &mut *kept;
        if *of_day != day || certificates.len() >= KEPT_MAX {
            *of_day = day;
            certificates.clear();
        }
        if let Some(found) = certificates.get(host) {
            return Some(found.clone());
        }
        let made = self.make(host, day).map(Arc::new);
        let made =
            made.inspect_err(|error| tracing::warn!(host, error = &**error, "cannot make a certificate")).ok()?;
        certificates.insert(host.to_owned(), made.clone());
        Some(made)
    }

    fn make(&self, host: &str, day: u64) -> Result<CertifiedKey, Box<dyn std::error::Error + Send + Sync>> {
        let HostCertificate { certificate, key } = self.authority.host(host, day)?;
        let key = PrivateKeyDer::try_from(key)?;
        Ok(CertifiedKey::from_der(vec![CertificateDer::from(certificate)], key, &self.provider)?)
    }
}

#[cfg(test)]
mod tests {
    use dorm_lifecycle::ProjectId;

    use super::*;

    fn certificates(given: bool) -> Certificates {
        let authority = Authority::derive(&[1; 32], &ProjectId::local());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let domains = Arc::new(Domains::with(["sandboxes.example.org".to_owned()]).unwrap());
        let kept = Mutex::default();
        let mut made = Certificates { authority, domains, given: None, provider, kept };
        made.given = given.then(|| Arc::new(made.make("sandboxes.example.org", 20_000).unwrap()));
        made
    }

    #[test]
    fn only_hosts_that_are_answered_to_have_a_certificate() {
        let all = certificates(false);
        for (host, has_one) in [
            (None, true),
            (Some("localhost"), true),
            (Some("8080-abc.localhost"), true),
            (Some("8080-ABC.sandboxes.example.org"), true),
            (Some("example.org"), false),
            (Some("evil.test"), false),
        ] {
            assert_eq!(all.certificate(host, 20_000).is_some(), has_one, "{host:?}");
        }
    }

    #[test]
    fn a_certificate_of_the_operator_is_used_for_its_own_domains() {
        let all = certificates(true);
        let given = all.given.clone().unwrap();
        let is_given = |host| Arc::ptr_eq(&all.certificate(host, 20_000).unwrap(), &given);
        assert!(is_given(None) && is_given(Some("8080-abc.sandboxes.example.org")));
        assert!(!is_given(Some("8080-abc.localhost")));
    }

    #[test]
    fn certificates_are_kept_for_a_day_and_bounded() {
        let all = certificates(false);
        let first = all.certificate(Some("a.localhost"), 20_000).unwrap();
        assert!(Arc::ptr_eq(&first, &all.certificate(Some("A.localhost."), 20_000).unwrap()));
        assert!(!Arc::ptr_eq(&first, &all.certificate(Some("a.localhost"), 20_001).unwrap()));
        for number in 0..2000 {
            all.certificate(Some(&format!("{number}-a.localhost")), 20_001).unwrap();
        }
        assert!(all.kept.lock().unwrap().1.len() <= KEPT_MAX);
    }
}
