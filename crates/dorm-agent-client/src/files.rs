//! Files in the sandbox. All operations are done as root there.

use std::error::Error as StdError;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dorm_agent_proto::{
    Answer, Attribute, DetailedEntry, End, Entry, Event, FileStat, GuestPath, GuestString, Parents, RemoveScope,
    Request, Scope, User, WatchEvent, WriteAt, WriteOptions,
};
use futures_util::{Stream, StreamExt};

use crate::agent::{Agent, wrong};
use crate::channel::{Channel, Item};
use crate::error::AgentError;
use crate::page::{Listed, Page, collect};
use crate::processes::send_all;

impl Agent {
    /// Reads a file from the byte `offset`, up to `length` bytes or its end. Follows links.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::IsADirectory`], [`AgentError::NotAFile`],
    /// [`AgentError::Denied`]; the stream returns an error if the rest cannot be read.
    pub async fn read_file(
        &self,
        path: &GuestPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(FileStat, FileStream), AgentError> {
        let request = Request::ReadFile { path: path.clone(), offset, length };
        match self.ask(&request).await? {
            (Answer::Stat(stat), channel) => Ok((stat, FileStream { channel, left: length.unwrap_or(u64::MAX) })),
            (other, channel) => Err(wrong(&channel, &other)),
        }
    }

    /// Writes a file atomically: readers see the old content or all of `body`. If the call fails or
    /// is dropped, the old content stays.
    ///
    /// # Errors
    /// [`AgentError::Body`] if `body` fails; [`AgentError::NoSpace`], [`AgentError::NotFound`] for
    /// its directory, [`AgentError::IsADirectory`], [`AgentError::NotAFile`],
    /// [`AgentError::NoUser`].
    pub async fn write_file<E>(
        &self,
        path: &GuestPath,
        options: WriteOptions,
        body: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<FileStat, AgentError>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut channel = self.open(&Request::WriteFile { path: path.clone(), options })?;
        let answer = upload(&mut channel, path, body).await?;
        stat_of(&channel, answer)
    }

    /// Writes into a file, which keeps its inode, and its mode and owner unless `options` says
    /// otherwise. Creates it if it is missing. If the call fails or is dropped, the file has a part
    /// of `body`.
    ///
    /// # Errors
    /// Those of [`Agent::write_file`]; [`AgentError::Older`].
    pub async fn write_in_place<E>(
        &self,
        path: &GuestPath,
        at: WriteAt,
        options: WriteOptions,
        body: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<FileStat, AgentError>
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let mut channel = self.open(&Request::WriteInPlace { path: path.clone(), at, options })?;
        let answer = upload(&mut channel, path, body).await?;
        stat_of(&channel, answer)
    }

    /// Lists a directory and `depth` levels of it (1: only its own entries), each directory before
    /// its content, sorted by name. Returns at most `most` and at most [`crate::PAGE_MAX`] of the
    /// entries after `after`. Does not follow links below the first level.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotADirectory`].
    pub async fn list(
        &self,
        path: &GuestPath,
        depth: u32,
        after: Option<&GuestPath>,
        most: usize,
    ) -> Result<Page<Entry>, AgentError> {
        let channel = self.follow(&Request::List { path: path.clone(), depth }).await?;
        let entry = |event| match event {
            Event::Entry(entry) => Listed::when(after.is_none_or(|after| stands_behind(&entry.path, after)), entry),
            _ => Listed::Stranger,
        };
        collect(channel, most, entry).await
    }

    /// Describes a path with its attributes. Does not follow a link, but tells where it leads.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::Older`].
    pub async fn describe(&self, path: &GuestPath) -> Result<DetailedEntry, AgentError> {
        let page = self.detailed(path, 0, None, 1).await?;
        page.items.into_iter().next().ok_or_else(|| AgentError::NotFound(path.clone()))
    }

    /// Lists a directory as [`Agent::list`] does, and describes each entry as [`Agent::describe`]
    /// does.
    ///
    /// # Errors
    /// Those of [`Agent::list`]; [`AgentError::Older`].
    pub async fn describe_entries(
        &self,
        path: &GuestPath,
        depth: u32,
        after: Option<&GuestPath>,
        most: usize,
    ) -> Result<Page<DetailedEntry>, AgentError> {
        self.detailed(path, depth.max(1), after, most).await
    }

    async fn detailed(
        &self,
        path: &GuestPath,
        depth: u32,
        after: Option<&GuestPath>,
        most: usize,
    ) -> Result<Page<DetailedEntry>, AgentError> {
        let channel = self.follow(&Request::Describe { path: path.clone(), depth }).await?;
        let entry = |event| match event {
            Event::Detailed(entry) => Listed::when(after.is_none_or(|after| stands_behind(&entry.path, after)), entry),
            _ => Listed::Stranger,
        };
        collect(channel, most, entry).await
    }

    /// Returns the metadata of a path. Does not follow a link.
    ///
    /// # Errors
    /// [`AgentError::NotFound`].
    pub async fn stat(&self, path: &GuestPath) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::Stat { path: path.clone() }).await
    }

    /// Creates a directory with mode `0o755`. With [`Parents::Create`] it may exist already.
    ///
    /// # Errors
    /// [`AgentError::Exists`], [`AgentError::NotFound`] for its parent,
    /// [`AgentError::NotADirectory`].
    pub async fn make_directory(
        &self,
        path: &GuestPath,
        parents: Parents,
        owner: Option<User>,
    ) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::MakeDirectory { path: path.clone(), parents, owner }).await
    }

    /// Creates a directory that must not exist, and its missing parents.
    ///
    /// # Errors
    /// [`AgentError::Exists`], [`AgentError::NotADirectory`], [`AgentError::NoUser`],
    /// [`AgentError::Older`].
    pub async fn make_new_directory(&self, path: &GuestPath, owner: Option<User>) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::MakeNewDirectory { path: path.clone(), owner }).await
    }

    /// Removes a file, link or directory. Does not follow a link.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotEmpty`].
    pub async fn remove(&self, path: &GuestPath, scope: RemoveScope) -> Result<(), AgentError> {
        self.do_it(&Request::Remove { path: path.clone(), scope }).await
    }

    /// Renames a path, replacing an existing file. Returns the metadata of the new path.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotEmpty`].
    pub async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::Rename { from: from.clone(), to: to.clone() }).await
    }

    /// Renames a path as [`Agent::rename`] does, and creates missing parents of the new path, which
    /// belong to `owner`.
    ///
    /// # Errors
    /// Those of [`Agent::rename`]; [`AgentError::NoUser`], [`AgentError::Older`].
    pub async fn move_to(&self, from: &GuestPath, to: &GuestPath, owner: Option<User>) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::Move { from: from.clone(), to: to.clone(), owner }).await
    }

    /// Returns the extended attributes of a file whose names begin with `user.`, ordered by name.
    /// Follows links.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::Older`]; [`AgentError::Other`] if they take more
    /// than 32 KiB.
    pub async fn attributes(&self, path: &GuestPath) -> Result<Vec<Attribute>, AgentError> {
        self.attributes_after(&Request::Attributes { path: path.clone() }).await
    }

    /// Sets extended attributes of a file, then removes others, and returns all that it has then.
    /// If it fails, some may be changed. Follows links.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NoSpace`], [`AgentError::Denied`],
    /// [`AgentError::Older`]; [`AgentError::Invalid`] for a name that does not begin with `user.`,
    /// or for more than 32 KiB.
    pub async fn set_attributes(
        &self,
        path: &GuestPath,
        set: Vec<Attribute>,
        remove: Vec<GuestString>,
    ) -> Result<Vec<Attribute>, AgentError> {
        self.attributes_after(&Request::SetAttributes { path: path.clone(), set, remove }).await
    }

    async fn attributes_after(&self, request: &Request) -> Result<Vec<Attribute>, AgentError> {
        match self.ask(request).await? {
            (Answer::Attributes(attributes), _) => Ok(attributes),
            (other, channel) => Err(wrong(&channel, &other)),
        }
    }

    /// Watches a directory. Every change after this has returned is reported.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotADirectory`].
    pub async fn watch(&self, path: &GuestPath, scope: Scope) -> Result<WatchStream, AgentError> {
        Ok(WatchStream { channel: self.follow(&Request::Watch { path: path.clone(), scope }).await? })
    }

    async fn stat_after(&self, request: &Request) -> Result<FileStat, AgentError> {
        let (answer, channel) = self.ask(request).await?;
        stat_of(&channel, answer)
    }
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// Returns whether `path` comes after `other` in a listing: a directory comes before its content,
/// sorted by name.
fn stands_behind(path: &GuestPath, other: &GuestPath) -> bool {
    path.as_bytes().split(is_slash).gt(other.as_bytes().split(is_slash))
}

fn stat_of(channel: &Channel, answer: Answer) -> Result<FileStat, AgentError> {
    match answer {
        Answer::Stat(stat) => Ok(stat),
        other => Err(wrong(channel, &other)),
    }
}

/// Sends the body and waits for the answer, which may come early if the agent fails.
async fn upload<E>(
    channel: &mut Channel,
    path: &GuestPath,
    body: impl Stream<Item = Result<Bytes, E>>,
) -> Result<Answer, AgentError>
where
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let mut body = pin!(body);
    loop {
        let chunk = tokio::select! {
            biased;
            answer = channel.answer() => return answer,
            chunk = body.next() => chunk,
        };
        match chunk {
            None => {
                channel.send_end(&End::Complete);
                return channel.answer().await;
            }
            Some(Ok(bytes)) => {
                if let Some(answer) = send_all(channel, &bytes).await? {
                    return Ok(answer);
                }
            }
            Some(Err(error)) => {
                channel.send_end(&End::Abandoned);
                // When the agent has answered, it has removed the partial file.
                drop(channel.answer().await);
                return Err(AgentError::Body { path: path.clone(), source: error.into() });
            }
        }
    }
}

/// The content of a file, as it arrives.
#[derive(Debug)]
pub struct FileStream {
    channel: Channel,
    /// How many bytes may still arrive.
    left: u64,
}

impl Stream for FileStream {
    type Item = Result<Bytes, AgentError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { channel, left } = self.get_mut();
        Poll::Ready(ready!(channel.poll_item(context)).map(|item| match item? {
            Item::Data(data) => {
                // Callers collect as many bytes as they have asked for.
                *left = left
                    .checked_sub(data.len() as u64)
                    .ok_or_else(|| channel.unexpected("more of a file than was asked for"))?;
                Ok(data)
            }
            Item::Event(event) => Err(channel.unexpected(&format!("an unexpected {event:?} in a file"))),
        }))
    }
}

/// The changes in a watched directory, as they happen. Never ends by itself.
#[derive(Debug)]
pub struct WatchStream {
    channel: Channel,
}

impl Stream for WatchStream {
    type Item = Result<WatchEvent, AgentError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let channel = &mut self.get_mut().channel;
        Poll::Ready(ready!(channel.poll_item(context)).map(|item| match item? {
            Item::Event(Event::Watch(event)) => Ok(event),
            other => Err(channel.unexpected(&format!("an unexpected {other:?} in a watch"))),
        }))
    }
}
