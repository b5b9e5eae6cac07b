//! Files in a sandbox. Contents are streams, so that the memory use does not depend on the size of
//! a file.

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::{Stream, StreamExt as _};
use reqwest::{Body, Method};

use super::{Client, ClientError, segment};

/// How to write a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Its permission bits; without them, those of the file it replaces, or 0644.
    pub(crate) mode: Option<u32>,
    /// Its length, if it is known.
    pub(crate) length: Option<u64>,
}

impl Client {
    /// Returns what is known about a path, or none if nothing is there. A link is not followed.
    pub(crate) async fn stat(&self, sandbox: &str, path: &str) -> Result<Option<wire::FileStat>, ClientError> {
        // Distinguishes a sandbox that does not exist from a file that does not exist.
        let asked = self.request(Method::GET, &files(sandbox, "/stat")).query(&[("path", path)]);
        match self.read(asked).await {
            Ok(stat) => Ok(Some(stat)),
            Err(ClientError::Refused { status: 404, error }) => {
                self.describe(sandbox).await?;
                drop(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns entries of a directory, from the one after `after` on.
    pub(crate) async fn list(
        &self,
        sandbox: &str,
        path: &str,
        after: Option<&str>,
    ) -> Result<wire::FileList, ClientError> {
        let after = after.map(|after| ("after", after));
        let query: Vec<_> = [("path", path)].into_iter().chain(after).collect();
        self.read(self.request(Method::GET, &files(sandbox, "/list")).query(&query)).await
    }

    /// Creates a directory with its parents. Succeeds if it exists.
    pub(crate) async fn make_directory(&self, sandbox: &str, path: &str) -> Result<(), ClientError> {
        let path = wire::Text::Plain(path.to_owned());
        let asked = wire::MakeDirectory { path, parents: None, exclusive: None, user: None };
        self.tell(self.request(Method::POST, &files(sandbox, "/mkdir")).json(&asked)).await
    }

    /// Returns the content of a file. The stream fails if the rest cannot be read.
    pub(crate) async fn read_file(
        &self,
        sandbox: &str,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + use<>, ClientError> {
        let answer = self.send(self.request(Method::GET, &files(sandbox, "")).query(&[("path", path)])).await?;
        let client = self.clone();
        Ok(answer.bytes_stream().map(move |piece| piece.map_err(|source| client.broken(source))))
    }

    /// Writes a file atomically: a reader sees the old or the new content.
    pub(crate) async fn write_file<S>(
        &self,
        sandbox: &str,
        path: &str,
        wanted: Wanted,
        contents: S,
    ) -> Result<(), ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let mut asked = self.request(Method::PUT, &files(sandbox, "")).query(&[("path", path)]);
        if let Some(mode) = wanted.mode {
            asked = asked.query(&[("mode", format!("{mode:04o}"))]);
        }
        if let Some(length) = wanted.length {
            asked = asked.header("content-length", length);
        }
        self.tell(asked.body(Body::wrap_stream(contents))).await
    }
}

fn files(sandbox: &str, verb: &str) -> String {
    format!("/sandboxes/{}/files{verb}", segment(sandbox))
}
