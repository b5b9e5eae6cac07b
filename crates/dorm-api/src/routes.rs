//! All routes in one table, which the router, the OpenAPI document and the tests read.

mod examples;

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing;
use dorm_api_types as wire;
use dorm_http::{Access, Life, Origin, Routed};
use tower_http::cors::{AllowHeaders, CorsLayer, ExposeHeaders};
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OneOf, RefOr, Schema};

use crate::access::{self, Gate, Need, Needs};
use crate::conditions;
use crate::error::{ApiError, ErrorCode};
use crate::extract::JSON_BYTES_MAX;
use crate::handlers::{
    attach, attributes, authority, builds, checkpoint, checkpoints, clone, create, daemon, diff, egress, environments,
    events, evict, exec, files, fork, hold, images, keys, operations, output, pools, ports, processes, projects,
    promote, pty, remote, restart, resume, retention, rewind, sandboxes, search, secrets, services, snapshots, suspend,
    templates, terminate, timeouts, transfer, tree, update, usage, volumes, watchers, webhooks, why,
};
use crate::state::Api;

macro_rules! routes {
    ($($method:ident $path:literal $need:ident $($handler:ident)::+;)*) => {
        /// The method and path of every route.
        #[cfg(test)]
        const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path),)*];

        /// The need of every route.
        const NEEDS: Needs = &[$((stringify!($method), $path, Need::$need),)*];

        fn table() -> Router<Api> {
            Router::new()$(.route($path, routing::$method($($handler)::+)))*
        }

        #[derive(OpenApi)]
        #[openapi(
            info(title = "Dormouse"),
            servers((url = "http://127.0.0.1:7070", description = "The address that `dorm serve` listens on by default.")),
            tags(
                (name = "sandboxes", description = "Create, suspend, resume, fork and terminate sandboxes."),
                (name = "processes", description = "Run commands and terminals inside a sandbox."),
                (name = "files", description = "Read and write files inside a running sandbox."),
                (name = "ports", description = "Reach ports inside a sandbox through the gateway."),
                (name = "snapshots", description = "Take, compare, transfer and delete snapshots."),
                (name = "images", description = "Import, pull, compose and export OCI images."),
                (name = "builds", description = "Build images and templates in the daemon."),
                (name = "templates", description = "Names under which sandboxes are created."),
                (name = "volumes", description = "Storage that outlives the sandboxes it is attached to."),
                (name = "operations", description = "Changes of sandboxes and snapshots that are in progress or have ended."),
                (name = "events", description = "The record of what happened to sandboxes."),
                (name = "webhooks", description = "Deliver events to an HTTP endpoint."),
                (name = "keys", description = "Create and revoke API keys."),
                (name = "pools", description = "Sandboxes that are made in advance, to be claimed."),
                (name = "environments", description = "Sandboxes that are asked for by a key."),
                (name = "secrets", description = "Secrets that are added to requests outside of sandboxes."),
                (name = "projects", description = "Separate users of one daemon, and limit what each can use."),
                (name = "daemon", description = "Health, metrics and maintenance of the daemon.")
            ),
            paths($($($handler)::+),*),
            components(responses(ApiError), schemas(wire::Problem, wire::DiffOrder)),
            security(("bearer" = []), ("key" = [])),
        )]
        struct Document;
    };
}

routes! {
    get "/v1/health" Nothing daemon::health;
    get "/v1/info" View daemon::info;
    get "/v1/openapi.json" View openapi;
    get "/v1/authority" View authority::describe;
    post "/v1/sandboxes" Change create::create;
    get "/v1/sandboxes" View sandboxes::list;
    get "/v1/sandboxes/{id}" ViewOne sandboxes::describe;
    delete "/v1/sandboxes/{id}" ChangeOne terminate::delete;
    patch "/v1/sandboxes/{id}" Change update::update;
    post "/v1/sandboxes/{id}/suspend" ChangeOne suspend::suspend;
    post "/v1/sandboxes/{id}/resume" ChangeOne resume::resume;
    post "/v1/sandboxes/{id}/evict" ChangeOne evict::evict;
    post "/v1/sandboxes/{id}/terminate" ChangeOne terminate::terminate;
    post "/v1/sandboxes/{id}/checkpoint" ChangeOne checkpoint::checkpoint;
    post "/v1/sandboxes/{id}/clone" Change clone::clone;
    post "/v1/sandboxes/{id}/fork" Change fork::fork;
    post "/v1/sandboxes/{id}/rewind" Change rewind::rewind;
    post "/v1/sandboxes/{id}/restart" Change restart::restart;
    post "/v1/sandboxes/{id}/promote" Change promote::promote;
    post "/v1/sandboxes/{id}/timeouts" ChangeOne timeouts::timeouts;
    post "/v1/sandboxes/{id}/extend" ChangeOne update::extend;
    post "/v1/sandboxes/{id}/egress" ChangeOne egress::egress;
    post "/v1/sandboxes/{id}/holds" ChangeOne hold::hold;
    delete "/v1/sandboxes/{id}/holds/{hold}" ChangeOne hold::release;
    post "/v1/sandboxes/{id}/retention" Change retention::retention;
    post "/v1/sandboxes/{id}/checkpoints" Change checkpoints::checkpoints;
    post "/v1/sandboxes/{id}/volumes" Change attach::attach;
    delete "/v1/sandboxes/{id}/volumes" Change attach::detach;
    get "/v1/sandboxes/{id}/why" ViewOne why::why;
    get "/v1/sandboxes/{id}/usage" ViewOne usage::usage;
    get "/v1/sandboxes/{id}/metrics" ViewOne usage::history;
    get "/v1/sandboxes/{id}/ports/{port}" ChangeOne ports::describe;
    post "/v1/sandboxes/{id}/ports/{port}/link" ChangeOne ports::link;
    post "/v1/sandboxes/{id}/exec" ChangeOne exec::exec;
    post "/v1/sandboxes/{id}/processes" ChangeOne processes::start;
    get "/v1/sandboxes/{id}/processes" ViewOne processes::list;
    get "/v1/sandboxes/{id}/processes/{process}" ViewOne processes::describe;
    get "/v1/sandboxes/{id}/processes/{process}/output" ViewOne output::output;
    post "/v1/sandboxes/{id}/processes/{process}/stdin" ChangeOne processes::stdin;
    post "/v1/sandboxes/{id}/processes/{process}/stdin/close" ChangeOne processes::close_stdin;
    post "/v1/sandboxes/{id}/processes/{process}/signal" ChangeOne processes::signal;
    post "/v1/sandboxes/{id}/processes/{process}/kill" ChangeOne processes::kill;
    post "/v1/sandboxes/{id}/processes/{process}/resize" ChangeOne processes::resize;
    get "/v1/sandboxes/{id}/processes/{process}/wait" ViewOne processes::wait;
    post "/v1/sandboxes/{id}/services" ChangeOne services::start;
    get "/v1/sandboxes/{id}/services" ViewOne services::list;
    get "/v1/sandboxes/{id}/services/{service}" ViewOne services::describe;
    delete "/v1/sandboxes/{id}/services/{service}" ChangeOne services::remove;
    post "/v1/sandboxes/{id}/services/{service}/stop" ChangeOne services::stop;
    get "/v1/sandboxes/{id}/services/{service}/output" ViewOne services::output;
    get "/v1/sandboxes/{id}/services/{service}/events" ViewOne services::events;
    get "/v1/sandboxes/{id}/pty" ChangeOne pty::pty;
    get "/v1/sandboxes/{id}/files" ViewOne files::read;
    put "/v1/sandboxes/{id}/files" ChangeOne files::write;
    delete "/v1/sandboxes/{id}/files" ChangeOne files::remove;
    get "/v1/sandboxes/{id}/files/stat" ViewOne files::stat;
    get "/v1/sandboxes/{id}/files/list" ViewOne files::list;
    post "/v1/sandboxes/{id}/files/mkdir" ChangeOne files::mkdir;
    post "/v1/sandboxes/{id}/files/rename" ChangeOne files::rename;
    get "/v1/sandboxes/{id}/files/watch" ViewOne files::watch;
    get "/v1/sandboxes/{id}/files/find" ViewOne search::find;
    get "/v1/sandboxes/{id}/files/grep" ViewOne search::grep;
    get "/v1/sandboxes/{id}/files/attributes" ViewOne attributes::attributes;
    post "/v1/sandboxes/{id}/files/attributes" ChangeOne attributes::set_attributes;
    post "/v1/sandboxes/{id}/watchers" ChangeOne watchers::create;
    get "/v1/sandboxes/{id}/watchers" ViewOne watchers::list;
    get "/v1/sandboxes/{id}/watchers/{watcher}/events" ChangeOne watchers::events;
    delete "/v1/sandboxes/{id}/watchers/{watcher}" ChangeOne watchers::remove;
    get "/v1/snapshots" View snapshots::list;
    get "/v1/snapshots/{id}" View snapshots::describe;
    delete "/v1/snapshots/{id}" Change snapshots::delete;
    get "/v1/snapshots/{id}/export" View transfer::export;
    post "/v1/snapshots/{id}/files" Change transfer::files;
    post "/v1/snapshots/import" Change transfer::import;
    post "/v1/snapshots/{id}/push" Change remote::push;
    post "/v1/snapshots/pull" Change remote::pull;
    get "/v1/tree" View tree::tree;
    get "/v1/diff" View diff::diff;
    get "/v1/images" View images::list;
    post "/v1/images/import" Administer images::import;
    post "/v1/images/upload" Administer images::upload;
    post "/v1/images/pull" Change images::pull;
    post "/v1/images/compose" Administer images::compose;
    get "/v1/images/{reference}" View images::describe;
    post "/v1/images/{reference}/export" Administer images::export;
    get "/v1/images/{reference}/download" View images::download;
    delete "/v1/images/{reference}" Change images::delete;
    put "/v1/contexts/{hash}" Change builds::upload;
    get "/v1/contexts/{hash}" View builds::context;
    post "/v1/builds" Change builds::create;
    get "/v1/builds" View builds::list;
    get "/v1/builds/{build}" View builds::describe;
    post "/v1/builds/{build}/cancel" Change builds::cancel;
    get "/v1/builds/{build}/logs" View builds::logs;
    post "/v1/templates" Change templates::create;
    get "/v1/templates" View templates::list;
    get "/v1/templates/{template}" View templates::describe;
    post "/v1/templates/{template}/tags" Change templates::tag;
    delete "/v1/templates/{template}" Change templates::delete;
    post "/v1/volumes" Change volumes::create;
    get "/v1/volumes" View volumes::list;
    get "/v1/volumes/{volume}" View volumes::describe;
    delete "/v1/volumes/{volume}" Change volumes::delete;
    get "/v1/volumes/{volume}/files" View volumes::read;
    put "/v1/volumes/{volume}/files" Change volumes::write;
    get "/v1/volumes/{volume}/files/list" View volumes::files;
    get "/v1/operations" View operations::list;
    get "/v1/operations/{id}" View operations::describe;
    get "/v1/events" View events::events;
    post "/v1/webhooks" Change webhooks::create;
    get "/v1/webhooks" View webhooks::list;
    post "/v1/webhooks/{id}/replay" Change webhooks::replay;
    delete "/v1/webhooks/{id}" Change webhooks::delete;
    post "/v1/keys" Change keys::create;
    get "/v1/keys" Change keys::list;
    delete "/v1/keys/{id}" Change keys::delete;
    post "/v1/pools" Change pools::create;
    get "/v1/pools" View pools::list;
    get "/v1/pools/{pool}" View pools::describe;
    put "/v1/pools/{pool}/size" Change pools::resize;
    post "/v1/pools/{pool}/claim" Change pools::claim;
    delete "/v1/pools/{pool}" Change pools::delete;
    post "/v1/ensure" Change environments::ensure;
    post "/v1/ensure/explain" Change environments::explain;
    get "/v1/environments" View environments::list;
    get "/v1/environments/{environment}" View environments::describe;
    delete "/v1/environments/{environment}" Change environments::delete;
    get "/v1/environments/{environment}/logs" View environments::logs;
    post "/v1/environments/{environment}/cancel" Change environments::cancel;
    post "/v1/environments/{environment}/release" Change environments::release;
    post "/v1/environments/{environment}/leases/{lease}/renew" Change environments::renew;
    put "/v1/secrets/{secret}" Change secrets::set;
    get "/v1/secrets" View secrets::list;
    get "/v1/secrets/{secret}" View secrets::describe;
    delete "/v1/secrets/{secret}" Change secrets::delete;
    post "/v1/projects" Administer projects::create;
    get "/v1/projects" Inspect projects::list;
    get "/v1/projects/{project}" Inspect projects::describe;
    put "/v1/projects/{project}/budgets" Administer projects::budgets;
    delete "/v1/projects/{project}" Administer projects::delete;
    get "/v1/gc" Inspect daemon::items;
    post "/v1/gc" Administer daemon::collect;
    get "/v1/verify" Inspect daemon::stored;
    post "/v1/verify" Administer daemon::verify;
    get "/v1/quarantine" Inspect daemon::quarantine;
    get "/metrics" Inspect daemon::metrics;
}

/// The introduction of the OpenAPI document: rules that hold for all operations.
const INTRODUCTION: &str = "The native API of Dormouse, a sandbox server for AI agents.

**Authentication.** Send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`. Requests over the Unix socket \
`api.sock` of the daemon need no key. A key belongs to a project, and nothing of another project exists for it. Keys of \
the project `local`, which is the daemon's own, may choose another project with `X-Dormouse-Project: NAME`.

**Lists.** `limit` is the largest number of items in a response. `next` of the response is null on the last page; \
otherwise, send it as `after` to get the next page. `GET /v1/events` always has a `next`, because events keep coming.

**Errors.** Every response that is not a success has an `application/problem+json` body, described by the schema \
`Problem`. Compare `code`; `detail` and `next_step` are for people. docs/reference/errors.md lists all codes.

**Retries.** A `POST` that makes something accepts an `Idempotency-Key`: a unique text, for example a random UUID. A \
retry with the same key and the same request makes nothing: it returns what the first request made, with the header \
`Idempotent-Replayed: true`, for at least 24 hours, also if the daemon died in between. Other requests can be repeated \
as they are, or refuse the header.

**Concurrent changes.** A sandbox has a `revision`, which is its `ETag`. A change with `If-Match` and an `ETag` fails \
with status 412 if the sandbox was changed meanwhile.

**Values.** Times are RFC 3339 strings in UTC, durations are numbers of seconds (`*_secs`), sizes are bytes \
(`*_bytes`). Requests with unknown fields or query parameters are refused. Clients should ignore unknown fields of \
responses.";

/// The OpenAPI document.
fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    document.info.description = Some(INTRODUCTION.to_owned());
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    components.add_security_scheme("key", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))));
    examples::add(components);
    conditions::describe(&mut document);
    for item in document.paths.paths.values_mut() {
        let Some(RefOr::T(body)) = item.post.as_mut().and_then(|post| post.request_body.as_mut()) else { continue };
        for content in body.content.values_mut() {
            let RefOr::T(content) = content else { continue };
            omitted_rather_than_null(&mut content.schema);
        }
    }
    document
}

/// Describes an optional body by its type alone: that it is not required says that it can be
/// omitted, and generated clients send the null of the derived type in its place.
fn omitted_rather_than_null(schema: &mut Option<RefOr<Schema>>) {
    let Some(RefOr::T(Schema::OneOf(OneOf { items, .. }))) = schema else { return };
    let body = items.iter().find(|one| matches!(one, RefOr::Ref(_))).cloned();
    if let (Some(body), 2) = (body, items.len()) {
        *schema = Some(body);
    }
}

/// Get this OpenAPI document
#[utoipa::path(get, path = "/v1/openapi.json", operation_id = "getOpenApi", tag = "daemon", responses(
    (status = 200, description = "An OpenAPI 3.1 document.", body = Object),
    (status = "default", response = ApiError),
))]
async fn openapi() -> axum::Json<utoipa::openapi::OpenApi> {
    axum::Json(document())
}

/// The routes of the native API, behind the gateway to ports and the check of the key.
pub(crate) fn router(access: Access, life: Life) -> Router {
    let api = Api { access, life, metrics: crate::metrics::handle() };
    let gate = Gate { api: api.clone(), needs: NEEDS };
    let routes = table()
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(JSON_BYTES_MAX))
        .layer(middleware::from_fn(conditions::apply))
        .layer(middleware::from_fn_with_state(gate, access::check));
    let origins = api.access.origins.clone();
    // Before the key: a browser asks without it whether a page may send it.
    let routes = match origins.is_empty() {
        true => routes,
        false => routes.layer(cross_origin(origins)),
    };
    routes.layer(middleware::from_fn_with_state(api.clone(), pass_on)).with_state(api)
}

/// How long a browser may remember that a page may call the API.
const PREFLIGHT: Duration = Duration::from_secs(3600);

/// Lets scripts of pages from these origins call the API. They need a key like everybody else.
fn cross_origin(origins: Vec<Origin>) -> CorsLayer {
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    CorsLayer::new()
        .allow_origin(origins.into_iter().map(HeaderValue::from).collect::<Vec<_>>())
        .allow_methods(methods)
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(ExposeHeaders::any())
        .max_age(PREFLIGHT)
}

/// Answers a request for a port of a sandbox, and passes any other on to the API.
async fn pass_on(State(api): State<Api>, request: Request, next: Next) -> Response {
    match api.gateway().route(request).await {
        Ok(Routed::Door(request)) => next.run(request).await,
        Ok(Routed::Port(response)) => response,
        Err(error) => ApiError::from(error).into_response(),
    }
}

const SEE_DOCUMENT: &str = "see GET /v1/openapi.json for all routes and their methods";

async fn no_route(request: Request) -> ApiError {
    let detail = format!("there is no route '{}'", request.uri().path());
    ApiError::not_found(detail, SEE_DOCUMENT)
}

async fn no_method(method: Method, request: Request) -> ApiError {
    let detail = format!("'{}' does not support the method {method}", request.uri().path());
    ApiError::new(ErrorCode::MethodNotAllowed, detail, SEE_DOCUMENT)
}

#[cfg(test)]
mod tests;
