//! Image archives that are sent or received over the network. They are spooled next to the images,
//! because neither an import nor an export reads or writes them sequentially.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use dorm_storage::{BlobDigest, Image, Spool, StorageError};
use futures_util::{Stream, StreamExt as _};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::ReaderStream;

use super::transfer::ExportFile;
use crate::error::ServiceError;
use crate::shared::Service;

/// How long a sender may be silent.
const SILENCE: Duration = Duration::from_secs(120);
/// How long the rest of a refused archive is read, so that its sender receives the reason.
const FAREWELL: Duration = Duration::from_secs(20);
/// After how many bytes the free space on the disk is checked again.
const LOOK_EVERY: u64 = 64 << 20;
/// The largest archive, in bytes.
const BYTES_MAX: u64 = 64 << 30;
const IMPORT: &str = "import an image";
const PIECE_BYTES: usize = 256 << 10;

impl Service {
    /// Receives an archive for an import, of `length` bytes if that is known. It is removed when
    /// the returned value is dropped.
    ///
    /// # Errors
    ///
    /// `NotAdmitted` before the disk is full; an error of the storage if a write fails or the
    /// archive is cut short.
    pub async fn receive_archive(
        &self,
        from: impl Stream<Item = io::Result<Bytes>> + Send,
        length: Option<u64>,
    ) -> Result<Spool, ServiceError> {
        let mut from = pin!(from);
        let received = tokio::select! {
            biased;
            () = self.shared.stopping.cancelled() => return Err(ServiceError::Stopping),
            received = self.receive(&mut from, length) => received,
        };
        if received.is_err() {
            let rest = async { while let Some(Ok(_)) = from.next().await {} };
            let _ = tokio::time::timeout(FAREWELL, rest).await;
        }
        received
    }

    async fn receive(
        &self,
        from: &mut (impl Stream<Item = io::Result<Bytes>> + Unpin),
        length: Option<u64>,
    ) -> Result<Spool, ServiceError> {
        is_allowed(length.unwrap_or(0))?;
        self.shared.admit_write(IMPORT, length.unwrap_or(0)).await?;
        let spool = self.shared.storage.spool().await?;
        let wrong = |operation, source| StorageError::of_file(operation, spool.path(), source);
        let mut file = File::create_new(spool.path()).await.map_err(|error| wrong("make", error))?;
        let (mut received, mut looked) = (0, 0);
        loop {
            let piece = match tokio::time::timeout(SILENCE, from.next()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(None) => break,
                Ok(Some(Err(error))) => return Err(broken(received, error)),
                Err(_) => return Err(broken(received, io::ErrorKind::TimedOut.into())),
            };
            received += piece.len() as u64;
            if received - looked >= LOOK_EVERY {
                looked = received;
                is_allowed(received)?;
                // The data received so far is on the disk already, so only the next part needs
                // room.
                self.shared.admit_write(IMPORT, LOOK_EVERY).await?;
            }
            file.write_all(&piece).await.map_err(|error| wrong("write", error))?;
        }
        file.flush().await.map_err(|error| wrong("write", error))?;
        drop(file);
        Ok(spool)
    }

    /// Returns an image as a file, with the digest of the manifest in it. The whole file is written
    /// when this returns.
    ///
    /// # Errors
    ///
    /// `NotAdmitted` if there is no room for it meanwhile; an error of the storage if the image is
    /// damaged.
    pub async fn image_file(
        &self,
        image: &Image,
    ) -> Result<(ExportFile<impl Stream<Item = io::Result<Bytes>> + Send + use<>>, BlobDigest), ServiceError> {
        self.shared.admit_write("export an image", image.bytes).await?;
        let spool = self.shared.storage.spool().await?;
        let exported = self.shared.storage.export_image(&image.digest, spool.path()).await?;
        let opened = File::open(spool.path()).await;
        let file = opened.map_err(|source| StorageError::of_file("open", spool.path(), source))?;
        // The file is removed with its directory, and stays readable while it is open.
        drop(spool);
        let name = format!("{}.tar", image.digest.as_str().chars().take(12).collect::<String>());
        let content = ReaderStream::with_capacity(file, PIECE_BYTES);
        Ok((ExportFile { bytes: exported.bytes, name, content }, exported.manifest))
    }
}

fn is_allowed(bytes: u64) -> Result<(), ServiceError> {
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    let what = format!("it has more than {} GiB", BYTES_MAX >> 30);
    Err(StorageError::Source { path: uploaded(), what, source: None }.into())
}

fn uploaded() -> PathBuf {
    PathBuf::from("the uploaded archive")
}

fn broken(received: u64, source: io::Error) -> ServiceError {
    let what = format!("it was cut short after {received} bytes");
    StorageError::Source { path: uploaded(), what, source: Some(source) }.into()
}
