//! Files in a sandbox. Contents are streams, so that the memory use does not depend on the size of
//! a file.

use std::ops::RangeBounds;

use bytes::Bytes;
use dorm_api_types as wire;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use reqwest::{Body, Method};

use super::path::sandbox as of;
use super::{Client, ClientError};

/// The body of a response, in pieces. It fails if the rest cannot be read.
pub type ByteStream = BoxStream<'static, Result<Bytes, ClientError>>;

/// How to write a file. The default replaces the file atomically: a reader sees the old or the new
/// content, and an incomplete request changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Its permission bits. Default: those of the file that it replaces, or 0644.
    pub mode: Option<u32>,
    /// Its length in bytes, if it is known.
    pub length: Option<u64>,
    /// Its owner: a name, a number, or `UID:GID`. Default: that of the file that it replaces, or
    /// root.
    pub user: Option<String>,
    /// Write into the existing file, which is emptied first and keeps its inode, mode and owner.
    pub in_place: bool,
    /// Append to the existing file, in place.
    pub append: bool,
    /// Write in place from this byte on, and keep the rest of the file.
    pub offset: Option<u64>,
    /// Fail if the directory of the file does not exist. Default: it is created with its parents.
    pub without_parents: bool,
}

impl Wanted {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        query.extend(self.mode.map(|mode| ("mode", format!("{mode:04o}"))));
        query.extend(self.user.iter().map(|user| ("user", user.clone())));
        query.extend(self.offset.map(|offset| ("offset", offset.to_string())));
        let flags = [("in_place", self.in_place), ("append", self.append)];
        query.extend(flags.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name, "true".to_owned())));
        query.extend(self.without_parents.then(|| ("parents", "false".to_owned())));
        query
    }
}

impl Client {
    /// Returns the properties of a path, or none if nothing is there. A link is not followed.
    pub async fn stat(&self, sandbox: &str, path: &str) -> Result<Option<wire::FileStat>, ClientError> {
        let asked = self.request(Method::GET, &of(sandbox, "files/stat")).query(&[("path", path)]);
        match self.read(asked).await {
            Ok(stat) => Ok(Some(stat)),
            // Distinguishes a sandbox that does not exist from a file that does not exist.
            Err(error) if error.is_not_found() => self.describe(sandbox).await.map(|_| None),
            Err(error) => Err(error),
        }
    }

    /// Returns a page of the entries of a directory, from the one after `after` on, ordered by
    /// name. `depth` is the number of levels; each directory then comes before its contents.
    pub async fn list(
        &self,
        sandbox: &str,
        path: &str,
        depth: u32,
        after: Option<&str>,
    ) -> Result<wire::FileList, ClientError> {
        let mut query = vec![("path", path.to_owned()), ("depth", depth.to_string())];
        query.extend(after.map(|after| ("after", after.to_owned())));
        self.read(self.request(Method::GET, &of(sandbox, "files/list")).query(&query)).await
    }

    /// Creates a directory with its parents. Succeeds if it exists.
    pub async fn make_directory(&self, sandbox: &str, path: &str) -> Result<(), ClientError> {
        let path = wire::Text::Plain(path.to_owned());
        let asked = wire::MakeDirectory { path, parents: None, exclusive: None, user: None };
        self.create_directory(sandbox, &asked).await.map(drop)
    }

    /// Creates a directory.
    pub async fn create_directory(
        &self,
        sandbox: &str,
        asked: &wire::MakeDirectory,
    ) -> Result<wire::FileStat, ClientError> {
        self.post(&of(sandbox, "files/mkdir"), asked).await
    }

    /// Renames a file or directory. An existing file of the new name is replaced.
    pub async fn rename(&self, sandbox: &str, asked: &wire::Rename) -> Result<wire::FileStat, ClientError> {
        self.post(&of(sandbox, "files/rename"), asked).await
    }

    /// Deletes a file, a link or, with everything below it if `recursive`, a directory.
    pub async fn delete_file(&self, sandbox: &str, path: &str, recursive: bool) -> Result<(), ClientError> {
        let query = [("path", path.to_owned()), ("recursive", recursive.to_string())];
        self.tell(self.request(Method::DELETE, &of(sandbox, "files")).query(&query)).await
    }

    /// Returns the content of a file. The stream fails if the rest cannot be read.
    pub async fn read_file(&self, sandbox: &str, path: &str) -> Result<ByteStream, ClientError> {
        self.body(self.request(Method::GET, &of(sandbox, "files")).query(&[("path", path)])).await
    }

    /// Returns some bytes of a file, counted from 0. A range that begins after the end of the file
    /// is an error, and so is an empty one.
    pub async fn read_range(
        &self,
        sandbox: &str,
        path: &str,
        range: impl RangeBounds<u64>,
    ) -> Result<ByteStream, ClientError> {
        let asked = self.request(Method::GET, &of(sandbox, "files")).query(&[("path", path)]);
        self.body(asked.header("range", range_header(&range))).await
    }

    /// Writes a file.
    pub async fn write_file<S>(
        &self,
        sandbox: &str,
        path: &str,
        wanted: Wanted,
        contents: S,
    ) -> Result<wire::FileStat, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        let asked = self.request(Method::PUT, &of(sandbox, "files")).query(&[("path", path)]);
        let mut asked = asked.query(&wanted.query());
        if let Some(length) = wanted.length {
            asked = asked.header("content-length", length);
        }
        self.read(asked.body(Body::wrap_stream(contents))).await
    }

    /// Returns the extended attributes of a file.
    pub async fn attributes(&self, sandbox: &str, path: &str) -> Result<wire::FileAttributes, ClientError> {
        self.read(self.request(Method::GET, &of(sandbox, "files/attributes")).query(&[("path", path)])).await
    }

    /// Changes extended attributes of a file, and returns all that it has then.
    pub async fn set_attributes(
        &self,
        sandbox: &str,
        asked: &wire::SetFileAttributes,
    ) -> Result<wire::FileAttributes, ClientError> {
        self.post(&of(sandbox, "files/attributes"), asked).await
    }
}

/// Returns the header for a range of bytes. Its end is included there.
fn range_header(range: &impl RangeBounds<u64>) -> String {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let from = match range.start_bound() {
        Included(from) => *from,
        Excluded(from) => from.saturating_add(1),
        Unbounded => 0,
    };
    let to = match range.end_bound() {
        Included(to) => to.to_string(),
        // No byte is before the first one: the daemon refuses the range as empty.
        Excluded(to) => to.checked_sub(1).map_or_else(|| "-1".to_owned(), |to| to.to_string()),
        Unbounded => String::new(),
    };
    format!("bytes={from}-{to}")
}

#[cfg(test)]
mod tests {
    use super::range_header;

    #[test]
    fn ranges_of_http_include_their_end() {
        assert_eq!(range_header(&(10..13)), "bytes=10-12");
        assert_eq!(range_header(&(10..=13)), "bytes=10-13");
        assert_eq!(range_header(&(10..)), "bytes=10-");
        assert_eq!(range_header(&(..1)), "bytes=0-0");
    }
}
