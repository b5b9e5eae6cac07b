//! Uploads. A file is written in place as it arrives: it keeps its inode, and an upload that breaks
//! leaves a part.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header;
use bytes::Bytes;
use dorm_agent_client::{Agent, GuestPath, Parents, WriteAt, WriteOptions};
use dorm_service::Use;
use futures_util::{Stream, StreamExt as _};

use super::super::access::{Call, Person};
use super::super::fault::{Failed, Fault};
use super::form::Form;
use super::{Written, gzip, metadata, parameter, person};

type Content = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// The form of the body of an upload.
enum Shape {
    /// The body is the file.
    Whole,
    /// The body is a form, with this content type.
    Parts(String),
}

/// Writes the files of a request.
pub(super) async fn upload(call: &Call, request: Request) -> Result<Vec<Written>, Failed> {
    let given = parameter(request.uri(), "path")?.filter(|path| !path.is_empty());
    let metadata = metadata::of(request.headers())?;
    let form = form(request.headers())?;
    let (agent, _in_use) = call.agent(Use::Files).await?;
    let person = person(call, request.uri(), &agent).await?;
    let content = content(request)?;
    let mut upload = Upload { agent, person, metadata, paths: BTreeSet::new(), written: Vec::new() };
    match (form, given) {
        (Shape::Whole, Some(given)) => upload.write(&given, content).await?,
        (Shape::Whole, None) => return Err(Fault::invalid("the parameter 'path' is missing").into()),
        (Shape::Parts(content_type), given) => upload.write_all(Form::new(&content_type, content)?, given).await?,
    }
    Ok(upload.written)
}

fn form(headers: &HeaderMap) -> Result<Shape, Fault> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("?"));
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "multipart/form-data" => Ok(Shape::Parts(content_type.to_owned())),
        "application/octet-stream" => Ok(Shape::Whole),
        _ => Err(Fault::invalid(format!(
            "the content type is '{content_type}': use multipart/form-data or application/octet-stream"
        ))),
    }
}

/// The body of a request, decompressed.
fn content(request: Request) -> Result<Content, Fault> {
    let encoding = request.headers().get(header::CONTENT_ENCODING).cloned();
    let body = request.into_body().into_data_stream();
    let body = body.map(|piece| piece.map_err(io::Error::other));
    match encoding.as_ref().map(|value| value.to_str().unwrap_or("?").to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(Box::pin(body)),
        Some("gzip") => Ok(Box::pin(gzip::decompressed(body))),
        Some(other) => Err(Fault::invalid(format!("unknown content encoding '{other}': use gzip or none"))),
    }
}

/// An upload, and what it has written.
struct Upload {
    agent: Agent,
    person: Person,
    metadata: BTreeMap<String, String>,
    paths: BTreeSet<GuestPath>,
    written: Vec<Written>,
}

impl Upload {
    /// Writes the files of a form. A path that is given counts instead of the name of the file.
    async fn write_all(&mut self, mut form: Form, given: Option<String>) -> Result<(), Failed> {
        while let Some((name, part)) = form.next().await? {
            let path = match (&given, name) {
                (Some(given), _) => given.clone(),
                (None, Some(name)) if !name.is_empty() => name,
                (None, _) => {
                    return Err(Fault::invalid("a file of the form has no filename, and 'path' is missing").into());
                }
            };
            let content = part.map(|piece| piece.map_err(io::Error::other));
            self.write(&path, Box::pin(content)).await?;
        }
        match self.written.is_empty() {
            true => Err(Fault::invalid("the form has no part named 'file'").into()),
            false => Ok(()),
        }
    }

    async fn write(&mut self, given: &str, content: Content) -> Result<(), Failed> {
        let path = self.person.path(given)?;
        if !self.paths.insert(path.clone()) {
            return Err(Fault::invalid(format!("you cannot upload multiple files to the same path '{path}'")).into());
        }
        let options = WriteOptions { mode: None, owner: Some(self.person.user.clone()), parents: Parents::Create };
        self.agent.write_in_place(&path, WriteAt::Emptied, options, content).await?;
        metadata::replace(&self.agent, &path, &self.metadata).await?;
        self.written.push(Written::new(&path.to_text(), self.metadata.clone()));
        Ok(())
    }
}
