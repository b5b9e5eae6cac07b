//! Every route, once: the router, the OpenAPI document and the tests read this one table.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing;
use dorm_service::Service;
use metrics_exporter_prometheus::PrometheusHandle;
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::connections::Standing;
use crate::error::ApiError;
use crate::extract::JSON_BYTES_MAX;
use crate::gateway;
use crate::handlers::{
    checkpoints, daemon, diff, events, exec, files, forks, images, keeping, output, processes, pty, remote, rewinds,
    sandboxes, snapshots, transfer, tree, volumes, webhooks,
};
use crate::keys::Keys;
use crate::serve::{Door, Life};
use crate::wire;

/// What every handler has at hand.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) service: Service,
    pub(crate) life: Life,
    pub(crate) keys: Arc<Keys>,
    pub(crate) metrics: Option<PrometheusHandle>,
}

const HEALTH: &str = "/v1/health";

macro_rules! routes {
    ($($method:ident $path:literal $($handler:ident)::+;)*) => {
        /// The method and path of every route.
        #[cfg(test)]
        const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path),)*];

        fn table() -> Router<Api> {
            Router::new()$(.route($path, routing::$method($($handler)::+)))*
        }

        #[derive(OpenApi)]
        #[openapi(
            info(title = "Dormouse", description = "The native API of Dormouse, a sandbox server for AI agents."),
            paths($($($handler)::+),*),
            components(schemas(
                wire::ErrorAnswer, wire::ImportProgress, wire::LostOutput, wire::TerminalMessage, wire::WatchEvent,
                wire::ProcessStarted, wire::CheckpointTaken, wire::OutputChunk, wire::Event
            )),
            security(("bearer" = []), ("key" = [])),
        )]
        struct Document;
    };
}

routes! {
    get "/v1/health" daemon::health;
    get "/v1/info" daemon::info;
    get "/v1/openapi.json" daemon::openapi;
    post "/v1/sandboxes" sandboxes::create;
    get "/v1/sandboxes" sandboxes::list;
    get "/v1/sandboxes/{id}" sandboxes::describe;
    delete "/v1/sandboxes/{id}" sandboxes::delete;
    post "/v1/sandboxes/{id}/suspend" sandboxes::suspend;
    post "/v1/sandboxes/{id}/resume" sandboxes::resume;
    post "/v1/sandboxes/{id}/evict" sandboxes::evict;
    post "/v1/sandboxes/{id}/terminate" sandboxes::terminate;
    post "/v1/sandboxes/{id}/checkpoint" sandboxes::checkpoint;
    post "/v1/sandboxes/{id}/clone" sandboxes::clone;
    post "/v1/sandboxes/{id}/fork" forks::fork;
    post "/v1/sandboxes/{id}/rewind" rewinds::rewind;
    post "/v1/sandboxes/{id}/restart" rewinds::restart;
    post "/v1/sandboxes/{id}/promote" rewinds::promote;
    post "/v1/sandboxes/{id}/timeouts" sandboxes::timeouts;
    post "/v1/sandboxes/{id}/holds" keeping::hold;
    delete "/v1/sandboxes/{id}/holds/{hold}" keeping::release;
    post "/v1/sandboxes/{id}/keeping" keeping::keeping;
    post "/v1/sandboxes/{id}/checkpoints" checkpoints::checkpoints;
    post "/v1/sandboxes/{id}/volumes" volumes::attach;
    delete "/v1/sandboxes/{id}/volumes" volumes::detach;
    get "/v1/sandboxes/{id}/why" sandboxes::why;
    get "/v1/sandboxes/{id}/usage" sandboxes::usage;
    post "/v1/sandboxes/{id}/exec" exec::exec;
    post "/v1/sandboxes/{id}/processes" processes::start;
    get "/v1/sandboxes/{id}/processes" processes::list;
    get "/v1/sandboxes/{id}/processes/{process}" processes::describe;
    get "/v1/sandboxes/{id}/processes/{process}/output" output::output;
    post "/v1/sandboxes/{id}/processes/{process}/stdin" processes::stdin;
    post "/v1/sandboxes/{id}/processes/{process}/stdin/close" processes::close_stdin;
    post "/v1/sandboxes/{id}/processes/{process}/signal" processes::signal;
    post "/v1/sandboxes/{id}/processes/{process}/resize" processes::resize;
    get "/v1/sandboxes/{id}/processes/{process}/wait" processes::wait;
    get "/v1/sandboxes/{id}/pty" pty::pty;
    get "/v1/sandboxes/{id}/files" files::read;
    put "/v1/sandboxes/{id}/files" files::write;
    delete "/v1/sandboxes/{id}/files" files::remove;
    get "/v1/sandboxes/{id}/files/stat" files::stat;
    get "/v1/sandboxes/{id}/files/list" files::list;
    post "/v1/sandboxes/{id}/files/mkdir" files::mkdir;
    post "/v1/sandboxes/{id}/files/rename" files::rename;
    get "/v1/sandboxes/{id}/files/watch" files::watch;
    get "/v1/snapshots" snapshots::list;
    get "/v1/snapshots/{id}" snapshots::describe;
    delete "/v1/snapshots/{id}" snapshots::delete;
    get "/v1/snapshots/{id}/export" transfer::export;
    post "/v1/snapshots/{id}/files" transfer::files;
    post "/v1/snapshots/import" transfer::import;
    post "/v1/snapshots/{id}/push" remote::push;
    post "/v1/snapshots/pull" remote::pull;
    get "/v1/tree" tree::tree;
    get "/v1/diff" diff::diff;
    get "/v1/images" images::list;
    post "/v1/images/import" images::import;
    post "/v1/images/upload" images::upload;
    post "/v1/images/pull" images::pull;
    post "/v1/images/compose" images::compose;
    get "/v1/images/{reference}" images::describe;
    post "/v1/images/{reference}/export" images::export;
    get "/v1/images/{reference}/download" images::download;
    delete "/v1/images/{reference}" images::delete;
    post "/v1/volumes" volumes::create;
    get "/v1/volumes" volumes::list;
    get "/v1/volumes/{volume}" volumes::describe;
    delete "/v1/volumes/{volume}" volumes::delete;
    get "/v1/volumes/{volume}/files" volumes::read;
    put "/v1/volumes/{volume}/files" volumes::write;
    get "/v1/volumes/{volume}/files/list" volumes::files;
    get "/v1/events" events::events;
    post "/v1/webhooks" webhooks::create;
    get "/v1/webhooks" webhooks::list;
    post "/v1/webhooks/{id}/replay" webhooks::replay;
    delete "/v1/webhooks/{id}" webhooks::delete;
    get "/v1/gc" daemon::artefacts;
    post "/v1/gc" daemon::collect;
    get "/v1/verify" daemon::stored;
    post "/v1/verify" daemon::verify;
    get "/v1/quarantine" daemon::quarantine;
    get "/metrics" daemon::metrics;
}

/// The OpenAPI document.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    components.add_security_scheme("key", SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key"))));
    document
}

/// The whole front door: gateway first, then the key, then the routes.
pub(crate) fn router(service: Service, keys: Keys, life: Life) -> Router {
    let api = Api { service, life, keys: Arc::new(keys), metrics: crate::metrics::handle() };
    table()
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(JSON_BYTES_MAX))
        .layer(middleware::from_fn_with_state(api.clone(), check_key))
        .layer(middleware::from_fn_with_state(api.clone(), gateway::pass_on))
        .with_state(api)
}

async fn check_key(State(api): State<Api>, request: Request, next: Next) -> Response {
    let has_key = api.keys.admit(request.headers());
    let is_owner = match request.extensions().get::<Door>() {
        Some(Door::Owner) => true,
        Some(Door::Network(ticket)) => {
            if has_key {
                ticket.stand(Standing::Known);
            }
            false
        }
        None => false,
    };
    if is_owner || has_key || request.uri().path() == HEALTH {
        return next.run(request).await;
    }
    let message = "this needs a key, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'";
    let hint = "the daemon keeps its key in the file `key` of its data directory";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message, hint).into_response()
}

async fn no_route(request: Request) -> ApiError {
    let message = format!("there is no '{}' here", request.uri().path());
    ApiError::not_found(message, "see /v1/openapi.json for what there is")
}

async fn no_method(method: Method, request: Request) -> ApiError {
    let message = format!("'{}' cannot be used with {method}", request.uri().path());
    let hint = "see /v1/openapi.json for what there is";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message, hint)
}

#[cfg(test)]
mod tests;
