//! Files inside a sandbox. Contents are streams, so that a file of any size needs the same memory.

use bytes::Bytes;
use dorm_api::wire;
use futures_util::{Stream, StreamExt as _};
use reqwest::{Body, Method};

use super::{Client, ClientError, segment};

/// How a file is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Its permission bits; none for those of the file it replaces, or 0644.
    pub(crate) mode: Option<u32>,
    /// Its length, where it is known.
    pub(crate) length: Option<u64>,
}

impl Client {
    /// What is known of a path, a link as itself; none when nothing is there.
    pub(crate) async fn stat(&self, sandbox: &str, path: &str) -> Result<Option<wire::FileStat>, ClientError> {
        // Tells a sandbox that is not there from a file that is not.
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

    /// Entries of a directory, those behind `after`.
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

    /// Makes a directory with its parents; one that is there is fine.
    pub(crate) async fn make_directory(&self, sandbox: &str, path: &str) -> Result<(), ClientError> {
        let asked = wire::MakeDirectory { path: wire::Text::Plain(path.to_owned()), parents: None, user: None };
        self.tell(self.request(Method::POST, &files(sandbox, "/mkdir")).json(&asked)).await
    }

    /// A file's contents. The stream fails when the rest cannot be read.
    pub(crate) async fn read_file(
        &self,
        sandbox: &str,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + use<>, ClientError> {
        let answer = self.send(self.request(Method::GET, &files(sandbox, "")).query(&[("path", path)])).await?;
        let client = self.clone();
        Ok(answer.bytes_stream().map(move |piece| piece.map_err(|source| client.broken(source))))
    }

    /// Writes a file. Whoever reads it sees the old one or the new one.
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
