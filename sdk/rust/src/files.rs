//! Files in a sandbox.

use std::ops::RangeBounds;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _};

use crate::client::{ByteStream, Client, ClientError, Find, Grep, Sse, Wanted};
use crate::types::{self, FileStat, Text};

/// The files of a sandbox. Paths are absolute.
///
/// # Errors
/// `not_found` if a path does not exist, `conflict` if it is of another type than the method needs
/// or the sandbox does not run.
#[derive(Clone, Debug)]
pub struct Files {
    client: Client,
    sandbox: String,
}

impl Files {
    pub(crate) const fn new(client: Client, sandbox: String) -> Self {
        Self { client, sandbox }
    }

    /// Returns the content of a file.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        whole(self.read_stream(path).await?).await
    }

    /// Returns the content of a file as text.
    ///
    /// # Errors
    /// [`ClientError::NotText`] if it is not UTF-8.
    pub async fn read_text(&self, path: &str) -> Result<String, ClientError> {
        let bytes = self.read(path).await?;
        String::from_utf8(bytes).map_err(|source| ClientError::NotText { what: path.to_owned(), source })
    }

    /// Returns some bytes of a file, such as `10..13` or `100..`.
    pub async fn read_range(&self, path: &str, range: impl RangeBounds<u64>) -> Result<Vec<u8>, ClientError> {
        whole(self.client.read_range(&self.sandbox, path, range).await?).await
    }

    /// Returns the content of a file piece by piece, so that the memory use does not depend on its
    /// size.
    pub async fn read_stream(&self, path: &str) -> Result<ByteStream, ClientError> {
        self.client.read_file(&self.sandbox, path).await
    }

    /// Writes a file atomically, with its parent directories: readers see the old or the new
    /// content.
    pub async fn write(&self, path: &str, contents: impl Into<Bytes>) -> Result<FileStat, ClientError> {
        self.write_with(path, Wanted::default(), contents).await
    }

    /// Appends to a file.
    pub async fn append(&self, path: &str, contents: impl Into<Bytes>) -> Result<FileStat, ClientError> {
        self.write_with(path, Wanted { append: true, ..Wanted::default() }, contents).await
    }

    /// Writes a file in another way, such as with other permission bits.
    pub async fn write_with(
        &self,
        path: &str,
        wanted: Wanted,
        contents: impl Into<Bytes>,
    ) -> Result<FileStat, ClientError> {
        let contents = contents.into();
        let wanted = Wanted { length: Some(contents.len() as u64), ..wanted };
        self.write_stream(path, wanted, futures_util::stream::iter([Ok(contents)])).await
    }

    /// Writes a file from a stream, so that the memory use does not depend on its size.
    pub async fn write_stream<S>(&self, path: &str, wanted: Wanted, contents: S) -> Result<FileStat, ClientError>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    {
        self.client.write_file(&self.sandbox, path, wanted, contents).await
    }

    /// Returns the entries of a directory, ordered by name.
    pub async fn list(&self, path: &str) -> Result<Vec<FileStat>, ClientError> {
        self.list_levels(path, 1).await
    }

    /// Returns the entries of a directory and of those below it, for a number of levels. Each
    /// directory comes before its contents.
    pub async fn list_levels(&self, path: &str, levels: u32) -> Result<Vec<FileStat>, ClientError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.client.list(&self.sandbox, path, levels, after.as_deref()).await?;
            all.extend(page.entries);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Returns the properties of a path, or none if nothing is there. A link is not followed.
    pub async fn stat(&self, path: &str) -> Result<Option<FileStat>, ClientError> {
        self.client.stat(&self.sandbox, path).await
    }

    /// Returns whether a path exists.
    pub async fn exists(&self, path: &str) -> Result<bool, ClientError> {
        Ok(self.stat(path).await?.is_some())
    }

    /// Creates a directory with its parents. Succeeds if it exists.
    pub async fn mkdir(&self, path: &str) -> Result<FileStat, ClientError> {
        let path = Text::Plain(path.to_owned());
        let asked = types::MakeDirectory { path, parents: None, exclusive: None, user: None };
        self.client.create_directory(&self.sandbox, &asked).await
    }

    /// Deletes a file, a link or an empty directory.
    pub async fn remove(&self, path: &str) -> Result<(), ClientError> {
        self.client.delete_file(&self.sandbox, path, false).await
    }

    /// Deletes a directory with everything below it.
    pub async fn remove_all(&self, path: &str) -> Result<(), ClientError> {
        self.client.delete_file(&self.sandbox, path, true).await
    }

    /// Moves a file or directory. An existing file of the new path is replaced.
    pub async fn rename(&self, from: &str, to: &str) -> Result<FileStat, ClientError> {
        let (from, to) = (Text::Plain(from.to_owned()), Text::Plain(to.to_owned()));
        self.client.rename(&self.sandbox, &types::Rename { from, to, parents: None, user: None }).await
    }

    /// Finds files.
    pub async fn find(&self, search: &Find) -> Result<types::FoundFiles, ClientError> {
        self.client.find(&self.sandbox, search).await
    }

    /// Finds lines in files.
    pub async fn grep(&self, search: &Grep) -> Result<types::FoundLines, ClientError> {
        self.client.grep(&self.sandbox, search).await
    }

    /// Follows the changes in a directory that happen after this has returned.
    pub async fn watch(&self, path: &str) -> Result<WatchStream, ClientError> {
        Ok(WatchStream { events: self.client.watch(&self.sandbox, path, false).await? })
    }

    /// Follows the changes in a directory and everything below it.
    pub async fn watch_all(&self, path: &str) -> Result<WatchStream, ClientError> {
        Ok(WatchStream { events: self.client.watch(&self.sandbox, path, true).await? })
    }
}

async fn whole(body: ByteStream) -> Result<Vec<u8>, ClientError> {
    body.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    })
    .await
}

/// The changes in a directory. Those during a lost connection are not seen, so the stream ends with
/// its connection; `create_watcher` of the [`Client`] keeps changes.
pub struct WatchStream {
    events: Sse,
}

impl WatchStream {
    /// Returns the next change, or none if the daemon has ended the stream, as when the sandbox is
    /// suspended.
    pub async fn next(&mut self) -> Result<Option<types::WatchEvent>, ClientError> {
        while let Some(event) = self.events.next().await? {
            if event.kind == "change" {
                return self.events.parse(&event).map(Some);
            }
        }
        Ok(None)
    }
}
