//! Credentials: whose request it is, and what its key permits.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{Extensions, HeaderMap};
use dorm_lifecycle::{ApiKeyId, Credential, DoorId, ProjectId, SandboxId};
use dorm_service::Service;
use dorm_store::{ApiKeyRecord, KeyScope};

use crate::connections::Standing;
use crate::door::Door;
use crate::hosts::Domains;
use crate::keys::{Keys, presented};
use crate::origin::Origin;
use crate::tls::Tls;

/// Whose credentials a request has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// The daemon's owner, over the owner's socket.
    OwnerSocket,
    /// The daemon's owner, with the key of the daemon.
    OwnerKey,
    /// An API key.
    ApiKey {
        /// Its id.
        id: ApiKeyId,
        /// Its name.
        name: String,
        /// Its SHA-256, which is never recorded with a request.
        hash: [u8; 32],
    },
}

/// The permissions of the key of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The scope of the key.
    pub scope: KeyScope,
    /// The project of the key.
    pub project: ProjectId,
    /// Whose credentials they are.
    pub holder: Holder,
}

impl Credentials {
    /// Those of the daemon's owner.
    fn of_owner(holder: Holder) -> Self {
        Self { scope: KeyScope::Full, project: ProjectId::local(), holder }
    }

    /// The part of them that is recorded.
    pub fn credential(&self) -> Credential {
        match &self.holder {
            Holder::OwnerSocket => Credential::OwnerSocket,
            Holder::OwnerKey => Credential::OwnerKey,
            Holder::ApiKey { id, name, .. } => Credential::ApiKey { id: id.clone(), name: name.clone() },
        }
    }

    /// Whether they are for the daemon and not only for one project: keys of the project `local`,
    /// which is the daemon's own.
    pub fn is_of_daemon(&self) -> bool {
        self.project == ProjectId::local()
    }

    /// Whether they admit a request to a private port of a sandbox.
    pub fn open_ports_of(&self, sandbox: &SandboxId, project: &ProjectId) -> bool {
        match &self.scope {
            KeyScope::Full => self.is_of_daemon() || self.project == *project,
            KeyScope::Sandbox(own) => own == sandbox,
            // Any request to a port may change something.
            KeyScope::ReadOnly => false,
        }
    }
}

/// The keys and the host names that requests may use, and the service that knows all other keys.
#[derive(Clone)]
pub struct Access {
    /// The service of the daemon's own project. Handlers use that of their request.
    pub daemon: Service,
    /// The keys of the daemon's owner.
    pub keys: Arc<Keys>,
    /// The host names that this server answers to.
    pub domains: Arc<Domains>,
    /// The TLS side of its listeners, if they have one.
    pub tls: Option<Tls>,
    /// The web pages, by their origin, whose scripts may call the API and read what it answers.
    pub origins: Vec<Origin>,
    /// The addresses of the doors for clients of other servers.
    pub doors: Vec<(DoorId, SocketAddr)>,
}

impl Access {
    /// Access with these keys of the owner, on these hosts.
    pub fn new(daemon: Service, keys: Keys, domains: Domains) -> Self {
        Self {
            daemon,
            keys: Arc::new(keys),
            domains: Arc::new(domains),
            tls: None,
            origins: Vec::new(),
            doors: Vec::new(),
        }
    }

    /// The credentials of a request; `None` without a known key. A connection that has shown a key
    /// counts as known from then on.
    pub fn credentials(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<Credentials> {
        match extensions.get::<Door>() {
            Some(Door::Owner) => Some(Credentials::of_owner(Holder::OwnerSocket)),
            Some(Door::Network(ticket)) => self.of_key(headers).inspect(|_| {
                ticket.stand(Standing::Known);
            }),
            None => self.of_key(headers),
        }
    }

    /// The credentials of a key in the usual headers, whatever the connection; `None` without a
    /// known key.
    pub fn of_key(&self, headers: &HeaderMap) -> Option<Credentials> {
        if self.keys.admit(headers) {
            return Some(Credentials::of_owner(Holder::OwnerKey));
        }
        presented(headers).find_map(|key| {
            let ApiKeyRecord { id, project, name, scope, hash, .. } = self.daemon.presented_key(key)?;
            Some(Credentials { scope, project, holder: Holder::ApiKey { id, name, hash } })
        })
    }

    /// Removes every key of this server from headers that are passed on into a sandbox.
    pub(crate) fn conceal(&self, headers: &mut HeaderMap) {
        self.keys.conceal(headers, |key| self.daemon.presented_key(key).is_some());
    }
}
