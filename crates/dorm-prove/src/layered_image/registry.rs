//! A registry on loopback that has one image: enough of the protocol for a pull that resumes after
//! an interruption.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The registry. It answers for as long as the process lives.
pub(super) struct Registry {
    address: String,
}

impl Registry {
    /// Serves the blobs of the OCI layout at `layout`.
    pub(super) fn open(layout: PathBuf) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen as a registry")?;
        let address = listener.local_addr().context("listen as a registry")?.to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let layout = layout.clone();
                // The client may die while it is answered.
                std::thread::spawn(move || drop(answer(&stream, &layout)));
            }
        });
        Ok(Self { address })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

fn answer(stream: &TcpStream, layout: &Path) -> Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let asked = lines.next().context("a request")??;
    let mut from = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap_or(0);
        }
    }
    let path = asked.split(' ').nth(1).unwrap_or_default();
    let mut to = stream;
    let Ok(content) = find(path, layout) else {
        to.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
        return Ok(());
    };
    let rest = content.get(from..).unwrap_or_default();
    let status = match from {
        0 => "200 OK".to_owned(),
        _ => format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{}", content.len() - 1, content.len()),
    };
    write!(to, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len())?;
    Ok(to.write_all(rest)?)
}

fn find(path: &str, layout: &Path) -> Result<Vec<u8>> {
    let (kind, name) = path.rsplit_once('/').context("a path")?;
    let digest = match (kind.ends_with("/manifests"), name.strip_prefix("sha256:")) {
        (_, Some(digest)) => digest.to_owned(),
        (true, None) => {
            let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
            let digest = index["manifests"][0]["digest"].as_str().context("a manifest")?;
            digest.trim_start_matches("sha256:").to_owned()
        }
        (false, None) => anyhow::bail!("there is no such thing"),
    };
    Ok(fs::read(layout.join("blobs/sha256").join(digest))?)
}
