//! Requests to one registry: authentication, manifests, and ranges of blobs.

mod upload;

use std::sync::Mutex;

use dorm_ports::{Logins, RegistryError, RegistryOperation, Transport};
use dorm_storage::{BlobDigest, DOCUMENT_BYTES_MAX};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, RANGE, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use sha2::{Digest as _, Sha256};

use crate::Config;
use crate::challenge::{self, Challenge};
use crate::credentials::Credentials;
use crate::hops::{Clients, Hops};
use crate::reference::{Reference, Version};
use crate::sending::{self, BodyError, Failed, Tries, Whom};

const DIGEST: &str = "docker-content-digest";
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// The client for one image in one registry.
pub(crate) struct RegistryClient<'a> {
    pub(crate) config: &'a Config,
    pub(crate) whom: Whom,
    hops: Hops<'a>,
    base: String,
    credentials: Credentials,
    /// The header `Authorization`, once it is known.
    authorization: Mutex<Option<HeaderValue>>,
}

impl<'a> RegistryClient<'a> {
    pub(crate) fn new(
        config: &'a Config,
        clients: &'a Clients,
        reference: &Reference,
        (transport, logins): (Transport, Logins),
        credentials: Credentials,
        operation: fn(Box<str>) -> RegistryOperation,
    ) -> Self {
        let plain = reference.is_loopback() || transport == Transport::Insecure;
        let scheme = if plain { "http" } else { "https" };
        let base = format!("{scheme}://{}/v2/{}", reference.host(), reference.repository);
        Self {
            config,
            whom: Whom { registry: reference.registry.clone(), name: operation(reference.to_string().into()) },
            hops: clients.of(reference, &base, logins),
            base,
            credentials,
            authorization: Mutex::default(),
        }
    }

    /// Returns the text of a manifest, and its digest, which is the requested one.
    pub(crate) async fn manifest(&self, version: &Version) -> Result<(Vec<u8>, BlobDigest), RegistryError> {
        let (word, wanted) = match version {
            Version::Tag(tag) => (tag.clone(), None),
            Version::Digest(digest) => (digest.to_string(), Some(digest)),
        };
        let url = format!("{}/manifests/{word}", self.base);
        let mut tries = Tries::new(self.config);
        loop {
            match self.manifest_once(&url, wanted).await {
                Ok(found) => return Ok(found),
                Err(failed) => tries.next(failed).await?,
            }
        }
    }

    async fn manifest_once(&self, url: &str, wanted: Option<&BlobDigest>) -> Result<(Vec<u8>, BlobDigest), Failed> {
        let response = self.ask(|| self.hops.request(Method::GET, url).header(ACCEPT, MANIFESTS)).await?;
        let said = response.headers().get(DIGEST).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let most = usize::try_from(DOCUMENT_BYTES_MAX).unwrap_or(usize::MAX);
        let text = sending::body(response, most).await.map_err(|error| match error {
            BodyError::TooLong => Failed::Final(self.whom.lies(format!("a manifest of more than {most} bytes"))),
            BodyError::Broken(error) => Failed::Passing(self.whom.unreachable(error), None),
        })?;
        let found = BlobDigest::from_bytes(&Sha256::digest(&text));
        let said = said.and_then(|said| said.parse::<BlobDigest>().ok());
        if let Some(wanted) = wanted.or(said.as_ref())
            && *wanted != found
        {
            return Err(Failed::Final(
                self.whom.lies(format!("a manifest with the digest {found} instead of {wanted}")),
            ));
        }
        Ok((text, found))
    }

    /// Requests a blob from the byte `from` on. The caller must check whether the response begins
    /// there or at the start.
    pub(crate) async fn blob(&self, digest: &BlobDigest, from: u64) -> Result<Response, Failed> {
        let url = format!("{}/blobs/{digest}", self.base);
        self.ask(|| {
            let request = self.hops.request(Method::GET, &url);
            if from > 0 { request.header(RANGE, format!("bytes={from}-")) } else { request }
        })
        .await
    }

    /// Sends a request, and authenticates if the registry asks for it.
    async fn ask(&self, request: impl Fn() -> RequestBuilder) -> Result<Response, Failed> {
        let response = self.hops.send(self.authorized(request()), &self.whom).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let challenge = challenge.and_then(challenge::parse);
        let Some(challenge) = challenge else { return Err(self.unauthorized(&sending::said(response).await)) };
        let authorization = self.introduce(challenge).await?;
        *self.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(authorization);
        let response = self.hops.send(self.authorized(request()), &self.whom).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(self.unauthorized(&sending::said(response).await)),
            _ => Ok(response),
        }
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        let known = self.authorization.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        match known {
            Some(value) => request.header(AUTHORIZATION, value),
            None => request,
        }
    }

    fn unauthorized(&self, said: &str) -> Failed {
        let what = match said {
            "" => self.credentials.shown().to_owned(),
            said => format!("{said}; {}", self.credentials.shown()),
        };
        let Whom { registry, name } = self.whom.clone();
        Failed::Final(RegistryError::Unauthorized { registry, name, what })
    }

    async fn introduce(&self, challenge: Challenge) -> Result<HeaderValue, Failed> {
        let text = match (challenge, &self.credentials) {
            (Challenge::Basic, Credentials::Password { user, password } | Credentials::Given { user, password }) => {
                basic(user, password)
            }
            (Challenge::Basic, Credentials::None | Credentials::Identity(_)) => return Err(self.unauthorized("")),
            (Challenge::Bearer { realm, service, scope }, credentials) => {
                format!("Bearer {}", self.token(&realm, service, scope, credentials).await?)
            }
        };
        let mut value =
            HeaderValue::from_str(&text).map_err(|_| self.unauthorized("its token is not a valid header value"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
        credentials: &Credentials,
    ) -> Result<String, Failed> {
        // A registry cannot make the client send credentials unencrypted.
        let realm = Url::parse(realm).ok().filter(|url| url.scheme() == "https" || self.base.starts_with("http:"));
        let Some(realm) = realm else { return Err(self.unauthorized("it names no secure URL for logging in")) };
        let mut query: Vec<(&str, String)> = Vec::new();
        query.extend(service.map(|service| ("service", service)));
        query.extend(scope.map(|scope| ("scope", scope)));
        let request = match credentials {
            Credentials::None => self.hops.request(Method::GET, realm).query(&query),
            Credentials::Password { user, password } | Credentials::Given { user, password } => {
                self.hops.request(Method::GET, realm).query(&query).header(AUTHORIZATION, basic(user, password))
            }
            Credentials::Identity(token) => {
                query.push(("grant_type", "refresh_token".to_owned()));
                query.push(("client_id", "dormouse".to_owned()));
                query.push(("refresh_token", token.clone()));
                let request = self.hops.request(Method::POST, realm);
                request.header("content-type", "application/x-www-form-urlencoded").body(form(&query))
            }
        };
        let response = self.hops.send(request, &self.whom).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(self.unauthorized(&sending::said(response).await));
        }
        let text = sending::body(response, 1 << 20).await.unwrap_or_default();
        let answer: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let token = answer["token"].as_str().or(answer["access_token"].as_str());
        token.map(str::to_owned).ok_or_else(|| self.unauthorized("its token service returned no token"))
    }
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

fn form(query: &[(&str, String)]) -> String {
    let mut url = Url::parse("http://x/").map_err(|_| ());
    if let Ok(url) = &mut url {
        url.query_pairs_mut().extend_pairs(query);
    }
    url.ok().and_then(|url| url.query().map(str::to_owned)).unwrap_or_default()
}
