//! Opens terminals in a sandbox.

use crate::client::{Client, ClientError, Terminal};

/// A terminal to open. The process in it continues when the client disconnects.
#[derive(Clone, Debug)]
#[must_use = "call `open`"]
pub struct OpenTerminal {
    client: Client,
    sandbox: String,
    query: Vec<(&'static str, String)>,
}

impl OpenTerminal {
    pub(crate) const fn new(client: Client, sandbox: String) -> Self {
        Self { client, sandbox, query: Vec::new() }
    }

    /// A line for `/bin/sh`. Default: the login shell of the user.
    pub fn command(self, line: &str) -> Self {
        self.set("cmd", line)
    }

    /// The size. Default: 24 rows and 80 columns.
    pub fn size(self, rows: u16, cols: u16) -> Self {
        self.set("rows", &rows.to_string()).set("cols", &cols.to_string())
    }

    /// The user: a name, a number, or `UID:GID`. Default: that of the image, or root.
    pub fn user(self, user: &str) -> Self {
        self.set("user", user)
    }

    /// The working directory. Default: that of the image, or the home directory of the user.
    pub fn cwd(self, path: &str) -> Self {
        self.set("cwd", path)
    }

    /// The value of `TERM`. Default `xterm-256color`.
    pub fn term(self, kind: &str) -> Self {
        self.set("term", kind)
    }

    /// Attaches to the process with this handle in place of starting one, and shows its output from
    /// this byte on. Other settings do not apply.
    pub fn attach(self, process: u64, offset: u64) -> Self {
        self.set("attach", &process.to_string()).set("offset", &offset.to_string())
    }

    /// Opens it.
    pub async fn open(self) -> Result<Terminal, ClientError> {
        self.client.terminal(&self.sandbox, &self.query).await
    }

    fn set(mut self, name: &'static str, value: &str) -> Self {
        self.query.retain(|(other, _)| *other != name);
        self.query.push((name, value.to_owned()));
        self
    }
}
