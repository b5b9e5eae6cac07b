//! A registry in this process, with faults in its next responses.

use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dorm_storage::BlobDigest;
use futures_util::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};

/// The fault of one response.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    None,
    /// The connection ends after this many bytes.
    Cut(usize),
    /// Nothing more arrives after this many bytes.
    Stall(usize),
    /// It arrives in small pieces.
    Slow,
    Status(u16, Option<u64>),
    /// It is a redirect to this URL.
    Elsewhere(String),
    /// It has other content of the same length.
    Spoilt,
    /// It is longer than announced.
    More,
    Content(Vec<u8>),
    WithoutRanges,
    WrongDigest,
}

/// The required authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Login {
    Basic,
    Token,
}

#[derive(Default)]
struct Repository {
    blobs: HashMap<String, Vec<u8>>,
    manifests: HashMap<String, Vec<u8>>,
    layers: Vec<BlobDigest>,
    faults: VecDeque<(&'static str, Fault)>,
    login: Option<Login>,
    /// The advertised URL of the token service.
    realm: Option<String>,
    asked: usize,
    ranges: Vec<String>,
    layers_sent: usize,
    sent: usize,
}

#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: String,
    repository: Arc<Mutex<Repository>>,
}

/// Returns the content of the file in a layer: hard to compress, and the same each time.
pub(super) fn content(name: &str) -> String {
    let mut sum = Sha256::digest(name.as_bytes());
    let mut text = String::new();
    for _ in 0..2000 {
        sum = Sha256::digest(sum);
        text.push_str(BlobDigest::from_bytes(&sum).hex());
    }
    text
}

fn digest(content: &[u8]) -> BlobDigest {
    BlobDigest::from_bytes(&Sha256::digest(content))
}

fn layer(name: &str) -> (Vec<u8>, BlobDigest) {
    let mut builder = tar::Builder::new(Vec::new());
    let content = content(name);
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    let plain = builder.into_inner().unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).unwrap();
    (packed.finish().unwrap(), digest(&plain))
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = Self { address, repository: Arc::default() };
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        server
    }

    fn repository(&self) -> MutexGuard<'_, Repository> {
        self.repository.lock().unwrap()
    }

    fn blob(&self, content: Vec<u8>) -> String {
        let digest = digest(&content);
        let described = format!(r#""digest":"{digest}","size":{}"#, content.len());
        self.repository().blobs.insert(digest.to_string(), content);
        described
    }

    /// Adds an image with one layer for each name, which contains a file of that name.
    pub(super) fn image(&self, tag: &str, layers: &[&str]) -> BlobDigest {
        self.image_of(tag, layers.iter().map(|name| layer(name)).collect())
    }

    pub(super) fn image_with_wrong_diff_id(&self, tag: &str, name: &str) {
        self.image_of(tag, vec![(layer(name).0, digest(b"something else"))]);
    }

    fn image_of(&self, tag: &str, layers: Vec<(Vec<u8>, BlobDigest)>) -> BlobDigest {
        let ids: Vec<_> = layers.iter().map(|(_, id)| format!("\"{id}\"")).collect();
        let config = format!(
            r#"{{"os":"linux","config":{{"Env":["A=1"]}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
            ids.join(",")
        );
        let config = self.blob(config.into_bytes());
        let mut described = Vec::new();
        for (packed, _) in layers {
            self.repository().layers.push(digest(&packed));
            let blob = self.blob(packed);
            described.push(format!(r#"{{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",{blob}}}"#));
        }
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{{"mediaType":"x",{config}}},"layers":[{}]}}"#,
            described.join(",")
        );
        self.manifest(tag, manifest.into_bytes())
    }

    pub(super) fn index(&self, tag: &str, images: &[(&str, &BlobDigest)]) {
        let entries: Vec<_> = images
            .iter()
            .map(|(architecture, digest)| {
                let platform = format!(r#"{{"os":"linux","architecture":"{architecture}"}}"#);
                format!(r#"{{"mediaType":"x","digest":"{digest}","size":1,"platform":{platform}}}"#)
            })
            .collect();
        self.manifest(tag, format!(r#"{{"schemaVersion":2,"manifests":[{}]}}"#, entries.join(",")).into_bytes());
    }

    fn manifest(&self, tag: &str, content: Vec<u8>) -> BlobDigest {
        let digest = digest(&content);
        let mut repository = self.repository();
        repository.manifests.insert(tag.to_owned(), content.clone());
        repository.manifests.insert(digest.to_string(), content);
        digest
    }

    /// Adds a fault to the next response without one for a path that contains `part`.
    pub(super) fn fault(&self, part: &'static str, fault: Fault) {
        self.repository().faults.push_back((part, fault));
    }

    pub(super) fn fault_at(&self, at: usize, fault: Fault) {
        self.repository().faults[at].1 = fault;
    }

    pub(super) fn no_faults(&self) {
        self.repository().faults.clear();
    }

    pub(super) fn login(&self, login: Login) {
        self.repository().login = Some(login);
    }

    pub(super) fn realm(&self, url: String) {
        self.repository().realm = Some(url);
    }

    /// Returns the number of requests.
    pub(super) fn asked(&self) -> usize {
        self.repository().asked
    }

    pub(super) fn ranges(&self) -> Vec<String> {
        self.repository().ranges.clone()
    }

    pub(super) fn layers_sent(&self) -> usize {
        self.repository().layers_sent
    }

    pub(super) fn sent(&self) -> usize {
        self.repository().sent
    }

    pub(super) fn last_layer(&self) -> String {
        self.repository().layers.last().unwrap().hex().to_owned()
    }

    fn let_in(&self, headers: &HeaderMap) -> Option<Response> {
        let login = self.repository().login?;
        let said = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (wanted, challenge) = match login {
            Login::Basic => ("Basic YW5uOmh1bnRlcjI=", "Basic realm=\"x\"".to_owned()),
            Login::Token => {
                let own = format!("http://{}/token", self.address);
                let realm = self.repository().realm.clone().unwrap_or(own);
                let challenge = format!("Bearer realm=\"{realm}\",service=\"tests\",scope=\"repository:app:pull\"");
                ("Bearer let-me-in", challenge)
            }
        };
        (said != wanted).then(|| (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response())
    }
}

async fn answer(State(server): State<Server>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    server.repository().asked += 1;
    if path == "/token" {
        let query = request.uri().query().unwrap_or_default();
        assert!(query.contains("service=tests") && query.contains("scope=repository"), "{query}");
        let said = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        return match said {
            Some("Basic YW5uOmh1bnRlcjI=") => r#"{"token":"let-me-in"}"#.into_response(),
            Some(_) => StatusCode::UNAUTHORIZED.into_response(),
            None => r#"{"token":"nobody"}"#.into_response(),
        };
    }
    if let Some(refused) = server.let_in(request.headers()) {
        return refused;
    }
    let mut repository = server.repository();
    let at = repository.faults.iter().position(|(part, _)| path.contains(part));
    let fault = at.and_then(|at| repository.faults.remove(at)).map_or(Fault::None, |(_, fault)| fault);
    if let Fault::Elsewhere(url) = fault {
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url)]).into_response();
    }
    if let Fault::Status(status, after) = fault {
        let mut response = StatusCode::from_u16(status).unwrap().into_response();
        if let Some(after) = after {
            response.headers_mut().insert(header::RETRY_AFTER, after.into());
        }
        return response;
    }
    let (kind, name) = path.rsplit_once('/').unwrap();
    let found = if kind.ends_with("/manifests") { repository.manifests.get(name) } else { repository.blobs.get(name) };
    let Some(mut content) = found.cloned() else {
        let text = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    if repository.layers.iter().any(|layer| layer.to_string() == name) {
        repository.layers_sent += 1;
    }
    match &fault {
        Fault::Content(other) => content.clone_from(other),
        Fault::Spoilt => content.reverse(),
        Fault::More => content.extend([0; 1000]),
        _ => {}
    }
    let range = request.headers().get(header::RANGE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let range = range.filter(|_| !matches!(fault, Fault::WithoutRanges));
    let from: usize = range.as_deref().map_or(0, |range| range[6..].trim_end_matches('-').parse().unwrap());
    let length = content.len();
    let content = content.split_off(from.min(length));
    repository.ranges.extend(range.clone());
    repository.sent += content.len();
    drop(repository);
    let mut response = Response::new(body(content.clone(), &fault));
    let headers = response.headers_mut();
    if !matches!(fault, Fault::More) {
        headers.insert(header::CONTENT_LENGTH, content.len().into());
    }
    if matches!(fault, Fault::WrongDigest) {
        let wrong = format!("sha256:{}", "0".repeat(64));
        headers.insert("docker-content-digest", wrong.parse().unwrap());
    }
    if range.is_some() {
        let said = format!("bytes {from}-{}/{length}", length.saturating_sub(1));
        headers.insert(header::CONTENT_RANGE, said.parse().unwrap());
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

fn body(content: Vec<u8>, fault: &Fault) -> Body {
    let part = |bytes: usize| Ok::<_, std::io::Error>(Bytes::copy_from_slice(&content[..bytes.min(content.len())]));
    match fault {
        Fault::Cut(bytes) => {
            // Earlier bytes are sent first.
            let end = stream::once(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err(std::io::Error::other("cut"))
            });
            Body::from_stream(stream::iter([part(*bytes)]).chain(end))
        }
        Fault::Stall(bytes) => Body::from_stream(stream::iter([part(*bytes)]).chain(stream::pending())),
        Fault::Slow => {
            let chunks: Vec<_> = content.chunks(8000).map(Bytes::copy_from_slice).collect();
            Body::from_stream(stream::iter(chunks).then(|chunk| async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok::<_, std::io::Error>(chunk)
            }))
        }
        // Without a length, so that only the content shows it.
        Fault::More => Body::from_stream(stream::iter([part(usize::MAX)])),
        _ => Body::from(content),
    }
}
