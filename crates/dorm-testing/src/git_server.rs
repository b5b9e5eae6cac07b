//! A server of repositories that sandboxes can reach.

use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};

use crate::internet::{Internet, end};

const PROGRAM: &str = include_str!("git_server.py");

/// A server of repositories outside, over HTTP on port 80. Dropping it ends it.
pub struct GitServer {
    internet: Internet,
    server: Child,
    saw: Arc<Mutex<Vec<String>>>,
}

impl GitServer {
    /// Serves the bare repositories below a directory. In the mode `private` they need the token.
    ///
    /// # Errors
    /// Those of [`Internet::new`].
    pub fn new(root: &Path, token: &str) -> Result<Self> {
        let internet = Internet::new()?;
        let root = root.to_str().context("a directory whose name is text")?;
        let (server, lines) = internet.serve(&["python3", "-c", PROGRAM, root, token])?;
        let saw: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = saw.clone();
        std::thread::spawn(move || {
            for line in lines {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Self { internet, server, saw })
    }

    /// Returns the URL of a repository in a mode: `open`, `private`, `half`, `hang` or `refuse`.
    #[must_use]
    pub fn url(&self, mode: &str, repository: &str) -> String {
        format!("http://{}/{mode}/{repository}", self.internet.address)
    }

    /// Returns whether a client has shown the token.
    #[must_use]
    pub fn has_seen_token(&self) -> bool {
        self.saw.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|line| line == "authorized")
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        end(&mut self.server);
    }
}
