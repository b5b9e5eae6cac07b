//! An HTTP server that records requests and answers as a test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use dorm_client::{Client, Retries};

/// A request that has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

/// The response of the server to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Closes the connection without a response.
    Nothing,
    /// Sends a status, headers and a body.
    Response(u16, &'static str, String),
    /// Sends the beginning of a stream of events, then closes the connection.
    Events(String),
}

impl Answer {
    pub(crate) fn json(status: u16, body: impl Into<String>) -> Self {
        Self::Response(status, "", body.into())
    }

    pub(crate) fn problem(status: u16, code: &str) -> Self {
        let body = format!(
            r#"{{"type":"/errors/{code}","title":"","status":{status},"detail":"it is {code}","code":"{code}","next_step":"do it"}}"#
        );
        Self::json(status, body)
    }
}

type Rule = dyn Fn(usize, &Request) -> Answer + Send + Sync;

/// A server that answers its n-th request, from 0, by a rule.
pub(crate) struct Server {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn new(rule: impl Fn(usize, &Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, rule): (_, Arc<Rule>) = (requests.clone(), Arc::new(rule));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, rule) = (seen.clone(), rule.clone());
                std::thread::spawn(move || serve(stream, &seen, &*rule));
            }
        });
        Self { address, requests }
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address, "key".to_owned(), None).unwrap()
    }

    /// A client that sends each request once.
    pub(crate) fn client_without_retries(&self) -> Client {
        self.client().with_retries(Retries::NONE)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The requests that have arrived, and forgets them.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Request>>, rule: &Rule) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let Some(request) = read(&mut reader) else { return };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.clone());
        seen.len() - 1
    };
    let (head, body) = match rule(number, &request) {
        Answer::Nothing => return,
        Answer::Response(status, headers, body) => {
            let length = body.len();
            (
                format!(
                    "HTTP/1.1 {status} X\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n"
                ),
                body,
            )
        }
        Answer::Events(body) => ("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n".to_owned(), body),
    };
    let mut stream = stream;
    // The client may have gone away, as in a test of that.
    let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes());
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let line = line(reader)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers = Vec::new();
    loop {
        let line = self::line(reader)?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let mut request = Request { method, path: path.to_owned(), query: query.to_owned(), headers, body: Vec::new() };
    request.body = body(reader, &request)?;
    Some(request)
}

fn body(reader: &mut BufReader<TcpStream>, request: &Request) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    if let Some(length) = request.header("content-length").and_then(|length| length.parse().ok()) {
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
    } else if request.header("transfer-encoding") == Some("chunked") {
        loop {
            let length = usize::from_str_radix(&line(reader)?, 16).ok()?;
            let start = body.len();
            body.resize(start + length, 0);
            reader.read_exact(&mut body[start..]).ok()?;
            line(reader)?;
            if length == 0 {
                break;
            }
        }
    }
    Some(body)
}

fn line(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
}
