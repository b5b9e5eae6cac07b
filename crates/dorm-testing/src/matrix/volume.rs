//! Helpers of checks for volumes.

use anyhow::{Result, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use super::Stage;

/// The mount point of the volume in checks.
pub(super) const PLACE: &str = "/data";
/// The name of the volume.
pub(super) const DATA: &str = "data";
const SIZE: u64 = 32 << 20;

impl dyn Stage + '_ {
    /// Creates a volume for one writer with a file `note` on it.
    pub(super) async fn volume(&self, name: &str) -> Result<()> {
        self.daemon().post("/volumes", json!({ "name": name, "size_bytes": SIZE })).await?;
        self.put(name, "note", "first").await
    }

    /// A request for a small sandbox that writes to a volume.
    pub(super) fn writer(&self) -> Value {
        self.with_volume(json!({ "volume": DATA, "path": PLACE }))
    }

    /// A request for a small sandbox that reads from a volume.
    pub(super) fn reader(&self) -> Value {
        self.with_volume(json!({ "volume": DATA, "path": PLACE, "read_only": true }))
    }

    fn with_volume(&self, volume: Value) -> Value {
        let mut asked = self.small();
        asked["volumes"] = json!([volume]);
        asked
    }

    /// Writes a file to a volume from outside of a sandbox.
    pub(super) async fn put(&self, volume: &str, file: &str, text: &str) -> Result<()> {
        let path = format!("/volumes/{volume}/files?path={file}");
        let answer = self.daemon().request(Method::PUT, &path).body(text.to_owned()).send().await?;
        ensure!(answer.status().is_success(), "{path}: {}", answer.text().await?);
        Ok(())
    }

    /// Checks the text of a file on a volume, read from outside of a sandbox.
    pub(super) async fn volume_has(&self, volume: &str, file: &str, text: &str) -> Result<()> {
        let path = format!("/volumes/{volume}/files?path={file}");
        let answer = self.daemon().request(Method::GET, &path).send().await?;
        let (is_there, said) = (answer.status().is_success(), answer.text().await?);
        ensure!(is_there && said == text, "'{file}' of {volume} is '{said}' instead of '{text}'");
        Ok(())
    }

    /// Checks the text of a file below [`PLACE`] in a sandbox.
    pub(super) async fn sees(&self, id: &str, file: &str, text: &str) -> Result<()> {
        let (code, said) = self.daemon().exec(id, &["cat", &format!("{PLACE}/{file}")]).await?;
        ensure!((code, &said[..]) == (0, text), "{id} sees '{said}' ({code}) in '{file}' instead of '{text}'");
        Ok(())
    }

    /// Checks that a sandbox has nothing below [`PLACE`].
    pub(super) async fn sees_nothing(&self, id: &str) -> Result<()> {
        let (_, said) = self.daemon().exec(id, &["ls", PLACE]).await?;
        ensure!(!said.contains("note"), "{id} sees '{said}'");
        Ok(())
    }

    /// Writes a file below [`PLACE`] in a sandbox.
    pub(super) async fn puts(&self, id: &str, file: &str, text: &str) -> Result<()> {
        self.daemon().write(id, &format!("{PLACE}/{file}"), text.as_bytes().to_vec()).await
    }

    /// Checks that a sandbox can change nothing below [`PLACE`].
    pub(super) async fn cannot_write(&self, id: &str) -> Result<()> {
        for command in ["touch", "rm"] {
            let (code, said) = self.daemon().exec(id, &[command, &format!("{PLACE}/note")]).await?;
            ensure!(code != 0, "{id}: {command} worked: {said}");
        }
        Ok(())
    }

    /// Checks that a request is refused because `holder` writes to the volume.
    pub(super) async fn is_taken(&self, path: &str, asked: Value, holder: &str) -> Result<()> {
        self.is_refused(Method::POST, path, Some(asked), holder).await
    }

    /// Checks that a request is refused with a message that has `word` and the volume's name.
    pub(super) async fn is_refused(&self, method: Method, path: &str, asked: Option<Value>, word: &str) -> Result<()> {
        let answer = self.daemon().try_ask(method, path, asked).await?;
        let message = answer.body["detail"].as_str().unwrap_or_default();
        ensure!(answer.status == 409 && message.contains(word), "{path}: {} {}", answer.status, answer.body);
        ensure!(message.contains(&format!("'{DATA}'")), "{path}: the volume is not named: {message}");
        Ok(())
    }

    /// Checks that another sandbox can be created with the volume and write to it, and ends it.
    pub(super) async fn another_writes(&self) -> Result<()> {
        let other = self.create(self.writer()).await?;
        self.puts(&other, "other", &other).await?;
        self.act(&other, "terminate").await?;
        self.volume_has(DATA, "other", &other).await
    }
}
