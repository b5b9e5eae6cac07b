//! Templates and their builds.

use axum::http::Method;
use axum::response::Response;
use dorm_service::{Code, CreateFrom, Service, ServiceError, TemplateReference};
use dorm_store::{Removal, TemplateRecord};

use super::Call;
use crate::error::Refusal;

mod changes;
mod files;
mod ids;
mod recipe;
mod request;
mod show;
mod start;
mod status;
mod tags;
mod wire;

/// The tag that clients of E2B mean if they give none.
pub(crate) const DEFAULT_TAG: &str = "default";

/// Reads the name of a template, perhaps with a tag.
pub(crate) fn reference(service: &Service, text: &str) -> Result<TemplateReference, Refusal> {
    let (name, tag) = name_and_tag(text);
    format!("{}:{}", own_name(service, name), tag.unwrap_or(DEFAULT_TAG)).parse().map_err(Refusal::from)
}

/// The name of a tag of a template, as clients see it.
pub(crate) fn shown_name(name: &str, tag: &str) -> String {
    format!("{name}:{tag}")
}

/// Whether a path is one of templates.
pub(crate) fn is_for(path: &[&str]) -> bool {
    matches!(path, ["templates", ..] | ["v2" | "v3", "templates", ..])
}

/// Receives the files of a step, which a ticket in the address permits instead of a key.
pub(crate) use files::upload;

/// Answers a request for templates.
pub(crate) async fn answer(path: &[&str], call: Call) -> Result<Response, Refusal> {
    let rest = match path {
        ["v2" | "v3", rest @ ..] => rest,
        rest => rest,
    };
    let method = call.request.method().clone();
    match (&method, rest) {
        (&Method::GET, ["templates"]) => show::list(call).await,
        (&Method::POST, ["templates"]) => request::request(call).await,
        (&Method::GET, ["templates", "aliases", alias]) => show::alias(alias, call).await,
        (&Method::POST, ["templates", "tags"]) => tags::assign(call).await,
        (&Method::DELETE, ["templates", "tags"]) => tags::remove(call).await,
        (&Method::GET, ["templates", id]) => show::one(id, call).await,
        (&Method::PATCH, ["templates", id]) => changes::publish(id, call).await,
        (&Method::DELETE, ["templates", id]) => changes::delete(id, call).await,
        (&Method::GET, ["templates", id, "tags"]) => tags::list(id, call).await,
        (&Method::GET, ["templates", id, "tags", "count"]) => tags::count(id, call).await,
        (&Method::GET, ["templates", id, "tags", "exists"]) => tags::exists(id, call).await,
        (&Method::GET, ["templates", id, "files", hash]) => files::slot(id, hash, call).await,
        (&Method::POST, ["templates", id, "builds", build]) => start::start(id, build, call).await,
        (&Method::GET, ["templates", id, "builds", build, "status"]) => status::status(id, build, call).await,
        (&Method::GET, ["templates", id, "builds", build, "logs"]) => status::logs(id, build, call).await,
        _ => Err(super::unknown(&call)),
    }
}

/// The origin of a new sandbox, and how it is reported.
pub(crate) struct Source {
    /// The template, snapshot or image.
    pub(crate) from: CreateFrom,
    /// The id to report: of the template or the snapshot, or the tag of the image.
    pub(crate) template_id: String,
    /// The name of the template, or the tag of the image.
    pub(crate) alias: Option<String>,
}

/// Returns the source that the `templateID` of a request names: a template by id or name, with a
/// tag or without, a snapshot by id, or an image by its tag.
pub(crate) async fn source_of(service: &Service, template_id: &str) -> Result<Source, Refusal> {
    let (name, tag) = name_and_tag(template_id);
    let Some(template) = template(service, name).await? else { return snapshot_or_image(service, template_id).await };
    let tag = known_tag(&template, tag).ok_or_else(|| no_tag(tag.unwrap_or(DEFAULT_TAG), name))?;
    let from = TemplateReference { name: template.name.clone(), tag: tag.to_owned() };
    Ok(Source {
        from: CreateFrom::Template(from),
        template_id: template.id.to_string(),
        alias: Some(template.name.to_string()),
    })
}

/// Returns the template with this id or name, if there is one.
async fn template(service: &Service, name: &str) -> Result<Option<TemplateRecord>, Refusal> {
    match service.template(&own_name(service, name)).await {
        Ok(template) => Ok(Some(template)),
        Err(error) if error.code() == Code::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the tag of a template that a request means, if the template has it. Without one that is
/// the default of E2B, or else that of Dormouse, under which its own clients build.
fn known_tag<'a>(template: &'a TemplateRecord, tag: Option<&str>) -> Option<&'a str> {
    let tag = tag.unwrap_or(DEFAULT_TAG);
    let candidates = [tag, if tag == DEFAULT_TAG { dorm_service::DEFAULT_TAG } else { tag }];
    candidates.iter().find_map(|tag| template.tags.get_key_value(*tag)).map(|(tag, _)| tag.as_str())
}

async fn snapshot_or_image(service: &Service, template_id: &str) -> Result<Source, Refusal> {
    let (name, tag) = name_and_tag(template_id);
    let bare = tag.is_none_or(|tag| tag == DEFAULT_TAG);
    if let (true, Ok(id)) = (bare, name.parse()) {
        match service.snapshot(&id).await {
            // One that is deleted as soon as nothing needs it no longer exists for clients.
            Ok(snapshot) if snapshot.removal == Removal::WhenFree => return Err(no_template(template_id)),
            Ok(snapshot) => {
                let alias = snapshot.name.map(|name| name.to_string());
                return Ok(Source { from: CreateFrom::Snapshot(id), template_id: name.to_owned(), alias });
            }
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(source) = image(service, template_id).await? {
        return Ok(source);
    }
    match (tag, image(service, name).await?) {
        (None, _) | (_, None) => Err(no_template(template_id)),
        (Some(_), Some(source)) if bare => Ok(source),
        (Some(tag), Some(_)) => Err(no_tag(tag, name)),
    }
}

/// Returns the image or the snapshot that a name stands for.
async fn image(service: &Service, name: &str) -> Result<Option<Source>, Refusal> {
    match service.source_named(CreateFrom::Image(name.to_owned())).await {
        Ok(from) => Ok(Some(Source { from, template_id: name.to_owned(), alias: Some(name.to_owned()) })),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_absent(error: &ServiceError) -> bool {
    matches!(error.code(), Code::NotFound | Code::Gone | Code::InvalidArgument)
}

fn no_template(name: &str) -> Refusal {
    Refusal::not_found(format!("template '{name}' not found"))
}

fn no_tag(tag: &str, name: &str) -> Refusal {
    Refusal::not_found(format!("tag '{tag}' does not exist for template '{name}'"))
}

/// Divides `NAME:TAG`. The colon of a port is no end of a name.
fn name_and_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    }
}

/// Returns a name as it is stored: in lower case, as E2B reads it, and without the name of the
/// project as its namespace.
fn own_name(service: &Service, name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    match name.split_once('/') {
        Some((namespace, rest)) if namespace == service.project().as_str() => rest.to_owned(),
        _ => name,
    }
}
