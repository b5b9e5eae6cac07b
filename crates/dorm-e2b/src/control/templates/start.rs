//! The start of a reserved build: its base, its steps, and the program of its template.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use dorm_lifecycle::{Digest, SnapshotId};
use dorm_ports::Login;
use dorm_service::{BuildSteps, CreateFrom, Service, ServiceError};
use dorm_storage::{ImageConfig, StorageError};
use dorm_store::{Recipe, TemplateSource};
use serde_json::json;

use super::super::Call;
use super::recipe::{Base, Steps, login_line, ready_line};
use super::request::too_many;
use super::status::own_build;
use super::wire::{BuildStart, ImageRegistry};
use super::{no_template, source_of};
use crate::error::Refusal;
use crate::text;

/// The images of E2B that are on this server under other names.
const OWN: [(&str, &str); 2] = [("e2bdev/base", "base"), ("e2bdev/code-interpreter", "code-interpreter-v1")];

/// Gives a build its steps.
pub(super) async fn start(id: &str, build: &str, call: Call) -> Result<Response, Refusal> {
    let Call { service, request, .. } = call;
    let asked: BuildStart = text::json(request).await?;
    let build = own_build(&service, id, build).await?;
    let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let login = asked.from_image_registry.map(login).transpose()?;
    let base = match (given(asked.from_image), given(asked.from_template)) {
        (Some(image), None) => of_image(&service, &image).await?,
        (None, Some(template)) => of_template(&service, &template).await?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Refusal::invalid("a build needs exactly one of fromImage and fromTemplate"));
        }
    };
    let mut steps = Steps::new(&base);
    for step in asked.steps.unwrap_or_default() {
        steps.add(step)?;
    }
    let (start_command, ready_command) = commands(&base, given(asked.start_cmd), given(asked.ready_cmd));
    let steps = BuildSteps {
        recipe: Recipe::Steps { from: base.from, steps: steps.finish() },
        start_command,
        ready_command,
        is_cached: !asked.force.unwrap_or(false),
        login,
    };
    service.start_build(&build, steps).await.map_err(too_many)?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

/// The login that a client gives for the registry of the base image.
fn login(asked: ImageRegistry) -> Result<Login, Refusal> {
    match asked {
        ImageRegistry::Registry { username: user, password } => Ok(Login { user, password }),
        // Google's registries know a key of a service account by this name.
        ImageRegistry::Gcp { service_account_json: password } => Ok(Login { user: "_json_key".to_owned(), password }),
        ImageRegistry::Aws {} => Err(Refusal::unsupported(
            "this server does not log in to AWS: pass the user 'AWS' and the output of \
             `aws ecr get-login-password` as username and password of the image",
        )),
    }
}

/// The lines that start the program of the template and tell when it is ready. A template without
/// its own has those of the template that it is built from.
fn commands(base: &Base, start: Option<String>, ready: Option<String>) -> (Option<String>, Option<String>) {
    match (start, ready) {
        (None, None) => base.program.clone(),
        (start, ready) => {
            // A line that ends at once, for one that only waits.
            let start = start.map_or_else(|| "true".to_owned(), |line| login_line(&line));
            (Some(start), ready.map(|line| ready_line(&line)))
        }
    }
}

/// The base that an image is: one of this server, or of the registry that its name means to Docker.
async fn of_image(service: &Service, name: &str) -> Result<Base, Refusal> {
    let name = name.trim();
    let bare = name.strip_prefix("docker.io/").unwrap_or(name);
    let bare = bare.strip_suffix(":latest").unwrap_or(bare);
    let name = OWN.iter().find(|(theirs, _)| *theirs == bare).map_or(name, |(_, ours)| ours);
    let from = match service.image(name).await {
        Ok(_) => name.to_owned(),
        Err(ServiceError::Storage(StorageError::NoImage { .. })) if OWN.iter().any(|(_, ours)| *ours == name) => {
            return Err(Refusal::not_found(format!(
                "the image '{name}' is not on this server: set it up with `cargo xtask setup`"
            )));
        }
        Err(ServiceError::Storage(StorageError::NoImage { .. })) => in_registry(name),
        Err(error) => return Err(error.into()),
    };
    Ok(Base::image(from))
}

/// Returns the name of an image with its registry.
fn in_registry(name: &str) -> String {
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

/// The base that a template is: the image that a build has made for it, or an image as it is.
async fn of_template(service: &Service, name: &str) -> Result<Base, Refusal> {
    let reference = match source_of(service, name).await?.from {
        CreateFrom::Template(reference) => reference,
        CreateFrom::Snapshot(_) => return Err(no_files(name)),
        CreateFrom::Image(image) => return Ok(Base::image(image)),
    };
    let template = service.template(reference.name.as_str()).await?;
    let version = template.tags.get(&reference.tag).ok_or_else(|| no_template(name))?;
    let (image, starts) = match (&version.source, &version.build) {
        (TemplateSource::Image(image), Some(_)) => (image.clone(), false),
        (TemplateSource::Image(image), None) => return Ok(Base::image(image.to_string())),
        (TemplateSource::Snapshot(snapshot), Some(_)) => (image_of(service, snapshot).await?, true),
        (TemplateSource::Snapshot(_), None) => return Err(no_files(name)),
    };
    let ImageConfig { user, entrypoint, ready, .. } = service.image(image.as_str()).await?.config;
    let start = match entrypoint.as_slice() {
        [shell, option, line] if starts && shell == "/bin/sh" && option == "-c" => Some(line.clone()),
        _ => None,
    };
    Ok(Base::template(image.to_string(), user, (start.clone(), start.and(ready))))
}

async fn image_of(service: &Service, snapshot: &SnapshotId) -> Result<Digest, Refusal> {
    Ok(service.snapshot(snapshot).await?.image)
}

fn no_files(name: &str) -> Refusal {
    Refusal::unsupported(format!(
        "'{name}' is a snapshot of a sandbox: a template is built from an image or from a template that was built"
    ))
}

#[cfg(test)]
mod tests {
    use super::in_registry;

    #[test]
    fn an_image_without_a_registry_is_one_of_docker_hub() {
        for (name, whole) in [
            ("python:3.11", "docker.io/library/python:3.11"),
            ("oven/bun:1", "docker.io/oven/bun:1"),
            ("ghcr.io/a/b", "ghcr.io/a/b"),
            ("localhost:5000/a", "localhost:5000/a"),
            ("localhost/a", "localhost/a"),
        ] {
            assert_eq!(in_registry(name), whole);
        }
    }
}
