//! Certificate authorities of projects, with which the daemon answers the HTTPS connections of a
//! sandbox in place of a host.
//!
//! ```text
//! the daemon's secrets key, the project ── HMAC-SHA-256 ──► the authority's key ──► its certificate
//!                                                                              └──► certificates of hosts
//! ```
//!
//! Nothing of an authority is stored: its key is derived from the key that encrypts secrets, and
//! its certificate is the same bytes each time. Pure: time comes from the caller, and signatures
//! are deterministic (RFC 6979).

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dorm_lifecycle::ProjectId;
use hmac::{Hmac, KeyInit as _, Mac as _};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{DerSignature, SigningKey};
use p256::pkcs8::EncodePrivateKey as _;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType, SerialNumber, SignatureAlgorithm,
};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use time::OffsetDateTime;

const DAY: u64 = 86_400;
/// How long a certificate of a host is valid before and after the day that it is made for. The
/// clock of a sandbox may differ from that of its host by this much.
const BEFORE_DAYS: u64 = 2;
const AFTER_DAYS: u64 = 30;
/// The host whose certificate is also for loopback addresses.
const LOCALHOST: &str = "localhost";
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
/// The maximum length of a common name.
const COMMON_NAME_MAX: usize = 64;

/// Why a certificate could not be made.
#[derive(Debug, Error)]
#[error("cannot make a certificate for {name}")]
pub struct AuthorityError {
    name: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// The authority of one project. `Debug` does not print its key.
#[derive(Clone)]
pub struct Authority {
    project: ProjectId,
    own: Key,
    /// The key of every certificate of a host.
    hosts: Key,
    /// The domains that its certificates can be for; `None` for all.
    domains: Option<Vec<String>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("project", &self.project).finish_non_exhaustive()
    }
}

impl PartialEq for Authority {
    fn eq(&self, other: &Self) -> bool {
        self.project == other.project && self.own.public == other.own.public
    }
}

impl Eq for Authority {}

/// A certificate of a host, with its key.
pub struct HostCertificate {
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
    /// Its private key, in PKCS #8.
    pub key: Vec<u8>,
}

impl Authority {
    /// Derives the authority of a project from a secret of the daemon.
    pub fn derive(secret: &[u8; 32], project: &ProjectId) -> Self {
        let key = |role: &str| Key::derive(secret, role, project);
        Self { project: project.clone(), own: key("authority"), hosts: key("hosts"), domains: None }
    }

    /// Returns the same authority, whose certificate says that it is only for these domains, their
    /// subdomains and loopback addresses. Who trusts it trusts it for nothing else.
    #[must_use]
    pub fn only_for(self, domains: Vec<String>) -> Self {
        Self { domains: Some(domains), ..self }
    }

    /// Returns a text that no other authority has. It is public.
    pub fn id(&self) -> String {
        self.own.id().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the authority's own certificate, in PEM. It is public.
    ///
    /// # Errors
    ///
    /// No project is known to cause one.
    pub fn certificate(&self) -> Result<String, AuthorityError> {
        let made = self.params().self_signed(&self.own);
        made.map(|certificate| certificate.pem()).map_err(|error| self.failed(self.project.as_str(), error))
    }

    /// Returns the day of a time, of which certificates of hosts are made.
    pub const fn day(unix_seconds: u64) -> u64 {
        unix_seconds / DAY
    }

    /// Makes the certificate of a host for a day.
    ///
    /// # Errors
    ///
    /// For a name that no certificate can have.
    pub fn host(&self, name: &str, day: u64) -> Result<HostCertificate, AuthorityError> {
        let fail =
            |error: Box<dyn std::error::Error + Send + Sync>| AuthorityError { name: name.to_owned(), source: error };
        let mut params = CertificateParams::default();
        let name_of_host = name.try_into().map_err(|error: rcgen::Error| fail(error.into()))?;
        params.subject_alt_names = vec![SanType::DnsName(name_of_host)];
        if name == LOCALHOST {
            // A client that uses an address names no host.
            params.subject_alt_names.extend(LOOPBACK.map(SanType::IpAddress));
        }
        params.distinguished_name = common_name(name);
        params.not_before = at(day.saturating_sub(BEFORE_DAYS))?;
        params.not_after = at(day.saturating_add(AFTER_DAYS))?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_identifier_method = self.hosts.identifier();
        let serial = Sha256::new().chain_update(name).chain_update(day.to_be_bytes()).finalize();
        params.serial_number = Some(serial_number(&serial));
        let issuer = Issuer::new(self.params(), &self.own);
        let certificate = params.signed_by(&self.hosts, &issuer).map_err(|error| self.failed(name, error))?;
        let key = self.hosts.signing.to_pkcs8_der().map_err(|error| fail(error.to_string().into()))?;
        Ok(HostCertificate { certificate: certificate.der().to_vec(), key: key.as_bytes().to_vec() })
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        let id: String = self.id().chars().take(8).collect();
        // The id distinguishes authorities of one project under two keys of the daemon.
        params.distinguished_name = common_name(&format!("Dormouse {id} {}", self.project));
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2049, 12, 31);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.key_identifier_method = self.own.identifier();
        params.serial_number = Some(serial_number(&self.own.id()));
        params.name_constraints = self.domains.as_ref().map(|domains| NameConstraints {
            permitted_subtrees: domains
                .iter()
                .map(|domain| GeneralSubtree::DnsName(domain.clone()))
                .chain([
                    GeneralSubtree::IpAddress(CidrSubnet::V4([127, 0, 0, 0], [255, 0, 0, 0])),
                    GeneralSubtree::IpAddress(CidrSubnet::V6(Ipv6Addr::LOCALHOST.octets(), [255; 16])),
                ])
                .collect(),
            excluded_subtrees: Vec::new(),
        });
        params
    }

    fn failed(&self, name: &str, error: rcgen::Error) -> AuthorityError {
        AuthorityError { name: name.to_owned(), source: error.into() }
    }
}

fn at(day: u64) -> Result<OffsetDateTime, AuthorityError> {
    let seconds = i64::try_from(day.saturating_mul(DAY)).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|error| AuthorityError { name: format!("day {day}"), source: error.into() })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name.chars().take(COMMON_NAME_MAX).collect::<String>());
    distinguished
}

/// A serial number is positive and has at most 20 bytes.
fn serial_number(hash: &[u8]) -> SerialNumber {
    let mut bytes = hash.iter().copied().take(16).collect::<Vec<_>>();
    if let Some(first) = bytes.first_mut() {
        *first = *first & 0x7f | 0x40;
    }
    SerialNumber::from(bytes)
}

/// A key on the curve P-256.
#[derive(Clone)]
struct Key {
    signing: SigningKey,
    /// Its public point, uncompressed.
    public: Vec<u8>,
}

impl Key {
    fn derive(secret: &[u8; 32], role: &str, project: &ProjectId) -> Self {
        for attempt in 0..=u8::MAX {
            let Ok(mac) = Hmac::<Sha256>::new_from_slice(secret) else { break };
            let text = format!("dormouse {role} 1 {project}");
            let bytes = mac.chain_update(text).chain_update([attempt]).finalize().into_bytes();
            // One in 2^32 numbers is not a key of this curve.
            if let Ok(signing) = SigningKey::from_slice(&bytes) {
                let public = signing.verifying_key().to_sec1_point(false).as_bytes().to_vec();
                return Self { signing, public };
            }
        }
        // 256 failures in a row have a probability of 2^-8192.
        std::process::abort()
    }

    fn id(&self) -> [u8; 32] {
        Sha256::digest(&self.public).into()
    }

    fn identifier(&self) -> KeyIdMethod {
        KeyIdMethod::PreSpecified(self.id()[..20].to_vec())
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature: DerSignature = self.signing.sign(message);
        Ok(signature.as_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    const NOW: u64 = 1_790_000_000;

    fn authority(secret: u8, project: &str) -> Authority {
        Authority::derive(&[secret; 32], &project.parse().unwrap())
    }

    fn trusts(trusted: &Authority, host: &HostCertificate, name: &str, at: u64) -> bool {
        let root = CertificateDer::from_pem_slice(trusted.certificate().unwrap().as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let certificate = CertificateDer::from(host.certificate.clone());
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        verifier.verify_server_cert(&certificate, &[], &name, &[], now).is_ok()
    }

    #[test]
    fn a_certificate_of_a_host_is_valid_for_its_name_its_time_and_its_project() {
        let one = authority(1, "one");
        let host = one.host("api.example.com", Authority::day(NOW)).unwrap();
        assert!(trusts(&one, &host, "api.example.com", NOW));
        assert!(
            trusts(&one, &host, "api.example.com", NOW - DAY) && trusts(&one, &host, "api.example.com", NOW + 20 * DAY)
        );
        assert!(!trusts(&one, &host, "www.example.com", NOW));
        assert!(!trusts(&one, &host, "api.example.com", NOW + 40 * DAY));
        assert!(!trusts(&authority(1, "other"), &host, "api.example.com", NOW), "another project");
        assert!(!trusts(&authority(2, "one"), &host, "api.example.com", NOW), "another key of the daemon");
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = rustls::pki_types::PrivateKeyDer::try_from(host.key).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        rustls::sign::CertifiedKey::new(vec![host.certificate.into()], key).keys_match().unwrap();
    }

    #[test]
    fn an_authority_with_limits_is_trusted_within_them_alone() {
        let limited = authority(1, "local").only_for(vec!["localhost".to_owned(), "example.org".to_owned()]);
        let issued = |name: &str| limited.host(name, Authority::day(NOW)).unwrap();
        for name in ["localhost", "8080-abc.localhost", "example.org", "a.example.org"] {
            assert!(trusts(&limited, &issued(name), name, NOW), "{name}");
        }
        for name in ["127.0.0.1", "::1"] {
            assert!(trusts(&limited, &issued("localhost"), name, NOW), "{name}");
        }
        for name in ["example.com", "notexample.org", "localhost.example.com"] {
            assert!(!trusts(&limited, &issued(name), name, NOW), "{name}");
        }
        assert!(!trusts(&limited, &issued("a.localhost"), "127.0.0.1", NOW));
    }

    #[test]
    fn an_authority_is_the_same_bytes_each_time() {
        let (one, again) = (authority(1, "one"), authority(1, "one"));
        assert_eq!(one, again);
        assert_eq!(one.certificate().unwrap(), again.certificate().unwrap());
        let (first, second) = (one.host("a.test", 20_000).unwrap(), again.host("a.test", 20_000).unwrap());
        assert!(first.certificate == second.certificate && first.key == second.key);
        assert!(one != authority(1, "two") && one != authority(2, "one"));
        assert_ne!(one.host("a.test", 20_001).unwrap().certificate, first.certificate);
    }

    #[test]
    fn a_key_is_not_printed() {
        let one = authority(7, "one");
        assert_eq!(format!("{one:?}"), "Authority { project: ProjectId(\"one\"), .. }");
    }

    #[test]
    fn a_name_that_cannot_be_is_refused() {
        assert!(authority(1, "one").host("ä.test", 1).is_err());
        let long = format!("{}.example.com", "a".repeat(63));
        assert!(trusts(&authority(1, "one"), &authority(1, "one").host(&long, 20_717).unwrap(), &long, NOW));
    }
}
