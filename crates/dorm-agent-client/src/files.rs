//! Files inside the sandbox. Everything is done as root there.

use std::error::Error as StdError;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dorm_agent_proto::{
    Answer, End, Entry, Event, FileStat, GuestPath, Parents, RemoveScope, Request, Scope, User, WatchEvent,
    WriteOptions,
};
use futures_util::{Stream, StreamExt};

use crate::agent::{Agent, wrong};
use crate::channel::{Channel, Item};
use crate::error::AgentError;
use crate::page::{Listed, Page, collect};
use crate::processes::send_all;

impl Agent {
    /// Reads a file from a byte on, as many bytes as there are or `length`. Links are followed.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::IsADirectory`], [`AgentError::NotAFile`], [`AgentError::Denied`]; the
    /// stream gives an error when the rest cannot be read.
    pub async fn read_file(
        &self,
        path: &GuestPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<(FileStat, FileStream), AgentError> {
        let request = Request::ReadFile { path: path.clone(), offset, length };
        match self.ask(&request).await? {
            (Answer::Stat(stat), channel) => Ok((stat, FileStream { channel })),
            (other, channel) => Err(wrong(&channel, &other)),
        }
    }

    /// Writes a file. It stands under its name only when all of `body` has come: whoever reads it sees the old file
    /// or the new one. When the call fails or is dropped, the old one stays.
    ///
    /// # Errors
    /// [`AgentError::Body`] when `body` fails; [`AgentError::NoSpace`], [`AgentError::NotFound`] for its directory,
    /// [`AgentError::IsADirectory`], [`AgentError::NotAFile`], [`AgentError::NoUser`].
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

    /// Lists a directory, `depth` levels of it (1: its own entries), a directory before what is in it, by name: at most
    /// `most` entries, and at most [`crate::PAGE_MAX`], of those behind `after`. Links are not followed below the first.
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

    /// What is known of a path without reading it. A link is reported as itself.
    ///
    /// # Errors
    /// [`AgentError::NotFound`].
    pub async fn stat(&self, path: &GuestPath) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::Stat { path: path.clone() }).await
    }

    /// Makes a directory with mode `0o755`. With [`Parents::Create`] it may exist already.
    ///
    /// # Errors
    /// [`AgentError::Exists`], [`AgentError::NotFound`] for its parent, [`AgentError::NotADirectory`].
    pub async fn make_directory(
        &self,
        path: &GuestPath,
        parents: Parents,
        owner: Option<User>,
    ) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::MakeDirectory { path: path.clone(), parents, owner }).await
    }

    /// Removes a file, link or directory. A link's target is left alone.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotEmpty`].
    pub async fn remove(&self, path: &GuestPath, scope: RemoveScope) -> Result<(), AgentError> {
        self.do_it(&Request::Remove { path: path.clone(), scope }).await
    }

    /// Renames, replacing a file that is there. Answers what stands under the new name.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::NotEmpty`].
    pub async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileStat, AgentError> {
        self.stat_after(&Request::Rename { from: from.clone(), to: to.clone() }).await
    }

    /// Watches a directory. Everything that happens after this has returned is reported.
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

/// The order of a listing: a directory before what is in it, by name.
fn stands_behind(path: &GuestPath, other: &GuestPath) -> bool {
    path.as_bytes().split(is_slash).gt(other.as_bytes().split(is_slash))
}

fn stat_of(channel: &Channel, answer: Answer) -> Result<FileStat, AgentError> {
    match answer {
        Answer::Stat(stat) => Ok(stat),
        other => Err(wrong(channel, &other)),
    }
}

/// Sends the body and waits for the answer, which may come early when the agent wants no more.
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
                // When it has answered, nothing of the file is left.
                drop(channel.answer().await);
                return Err(AgentError::Body { path: path.clone(), source: error.into() });
            }
        }
    }
}

/// A file's contents as they come.
#[derive(Debug)]
pub struct FileStream {
    channel: Channel,
}

impl Stream for FileStream {
    type Item = Result<Bytes, AgentError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let channel = &mut self.get_mut().channel;
        Poll::Ready(ready!(channel.poll_item(context)).map(|item| match item? {
            Item::Data(data) => Ok(data),
            Item::Event(event) => Err(channel.unexpected(&format!("an unexpected {event:?} in a file"))),
        }))
    }
}

/// Changes in a watched directory as they happen. Has no end of its own.
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
