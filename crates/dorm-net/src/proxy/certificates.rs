//! The TLS configurations with which the proxy answers in place of hosts, one for each host and
//! day.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use dorm_ports::Authority;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;

/// How many are kept. This only saves work: a sandbox may ask for any number of names.
const MOST: usize = 512;

/// The protocol that is offered: requests are read and written as HTTP/1.1.
pub(super) const PROTOCOL: &[u8] = b"http/1.1";

#[derive(Debug, Default)]
pub(crate) struct Certificates(Mutex<HashMap<(String, String, u64), Arc<ServerConfig>>>);

impl Certificates {
    /// Returns the configuration for a host, with a certificate of this authority.
    pub(crate) fn of(&self, authority: &Authority, name: &str) -> Result<Arc<ServerConfig>, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let key = (authority.id(), name.to_owned(), Authority::day(now));
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let config = Arc::new(config(authority, name, key.2)?);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, Arc::clone(&config));
        Ok(config)
    }
}

fn config(authority: &Authority, name: &str, day: u64) -> Result<ServerConfig, String> {
    let failed = |error: &dyn std::error::Error| dorm_engine::chain(error);
    let made = authority.host(name, day).map_err(|error| failed(&error))?;
    let key = PrivateKeyDer::try_from(made.key).map_err(str::to_owned)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| failed(&error))?.with_no_client_auth();
    let chain = vec![CertificateDer::from(made.certificate)];
    let mut config = config.with_single_cert(chain, key).map_err(|error| failed(&error))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Sessions would take memory for each name that a sandbox makes up.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

#[cfg(test)]
mod tests {
    use dorm_lifecycle::ProjectId;

    use super::*;

    #[test]
    fn a_configuration_is_made_once_for_each_project_and_the_number_is_bounded() {
        let certificates = Certificates::default();
        let authority = Authority::derive(&[1; 32], &ProjectId::local());
        let other = Authority::derive(&[1; 32], &"other".parse().unwrap());
        let first = certificates.of(&authority, "a.test").unwrap();
        assert!(Arc::ptr_eq(&first, &certificates.of(&authority, "a.test").unwrap()));
        assert!(!Arc::ptr_eq(&first, &certificates.of(&other, "a.test").unwrap()));
        for number in 0..MOST {
            certificates.of(&authority, &format!("n{number}.test")).unwrap();
        }
        assert!(certificates.0.lock().unwrap().len() <= MOST);
        assert!(certificates.of(&authority, "näme.test").is_err());
    }
}
