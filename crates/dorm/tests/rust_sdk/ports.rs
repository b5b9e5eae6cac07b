//! Ports.

use anyhow::Result;
use dorm_client::Dormouse;
use dorm_client::types::{PortAccess, State};
use dorm_client::{Method, Sandbox};

use crate::cases::{Cases, code_of, eventually};

/// Answers with method, path, body and its number of visits, which only memory holds.
const SERVER: &str = r#"
from http.server import BaseHTTPRequestHandler, HTTPServer
visits = 0
class Answer(BaseHTTPRequestHandler):
    def answer(self):
        global visits
        visits += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        keys = [name for name in ("Authorization", "X-Dormouse-Token") if name in self.headers]
        text = f"{self.command} {self.path} {body} {visits} {keys}".encode()
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-Program", "yes")
        self.end_headers()
        self.wfile.write(text)
    do_GET = do_POST = answer
    def log_message(self, *arguments):
        pass
HTTPServer(("", 8000), Answer).serve_forever()
"#;

async fn serve(sandbox: &Sandbox) -> Result<()> {
    sandbox.files().write("/srv/server.py", SERVER).await?;
    sandbox.start(["python3", "/srv/server.py"]).await?;
    eventually("the server listens", || async { Ok(sandbox.port(8000).get("/").await.is_ok()) }).await
}

/// The daemon of the cases, and what they share.
struct On {
    dormouse: Dormouse,
    sandbox: Sandbox,
    address: String,
}

crate::cases::area! {
    a_request_gets_the_response_of_the_program,
    a_request_has_a_method_and_a_body,
    an_error_of_the_program_is_its_response,
    the_program_sees_neither_the_key_nor_the_token,
    a_port_without_a_program_is_closed,
    a_port_has_a_url_and_a_link,
    a_private_port_is_reached_with_its_token,
    a_request_wakes_the_sandbox_with_its_memory,
    a_link_cannot_be_made_for_a_sandbox_that_does_not_exist,
}

#[tokio::test]
async fn ports() {
    let mut cases = Cases::new("ports");
    let dormouse = cases.dormouse();
    let address = cases.place().daemon().address().to_owned();
    let sandbox = dormouse.create("base").name("ports").await.unwrap();
    serve(&sandbox).await.unwrap();
    let on = On { dormouse, sandbox, address };
    run(&mut cases, &on).await;
    cases.end().await;
}

async fn a_request_gets_the_response_of_the_program(on: &On) -> Result<()> {
    let port = on.sandbox.port(8000);
    let response = port.get("/page?x=1").await?;
    assert_eq!(response.status, 200);
    assert!(response.text().starts_with("GET /page?x=1  "), "{}", response.text());
    assert!(response.headers.contains(&("x-program".to_owned(), "yes".to_owned())));
    Ok(())
}

async fn a_request_has_a_method_and_a_body(on: &On) -> Result<()> {
    let port = on.sandbox.port(8000);
    let response = port.request(Method::POST, "/form", "a=1").await?;
    assert!(response.text().starts_with("POST /form a=1 "), "{}", response.text());
    Ok(())
}

async fn an_error_of_the_program_is_its_response(on: &On) -> Result<()> {
    let port = on.sandbox.port(8000);
    assert_eq!(port.get("/none").await?.status, 404);
    Ok(())
}

async fn the_program_sees_neither_the_key_nor_the_token(on: &On) -> Result<()> {
    let port = on.sandbox.port(8000);
    let text = port.get("/").await?.text();
    assert!(text.ends_with("[]"), "{text}");
    Ok(())
}

async fn a_port_without_a_program_is_closed(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    assert_eq!(code_of(sandbox.port(9999).get("/").await), "port_closed");
    Ok(())
}

async fn a_port_has_a_url_and_a_link(on: &On) -> Result<()> {
    let On { sandbox, address, .. } = on;
    let port = on.sandbox.port(8000);
    let host = address.rsplit_once(':').unwrap().1;
    assert_eq!(port.url().await?, format!("http://8000-{}.localhost:{host}/", sandbox.id()));
    let link = port.link().await?;
    assert!(link.path.starts_with('/') && link.label.starts_with("8000-"));
    assert_eq!((port.number(), port.info().await?.access), (8000, PortAccess::Public));
    Ok(())
}

async fn a_private_port_is_reached_with_its_token(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    let private = dormouse.create("base").with(|asked| asked.port_access = Some(PortAccess::Private)).await?;
    serve(&private).await?;
    let port = private.port(8000);
    assert_eq!(port.info().await?.access, PortAccess::Private);
    assert_eq!(port.get("/").await?.status, 200);
    private.terminate().await?;
    Ok(())
}

async fn a_request_wakes_the_sandbox_with_its_memory(on: &On) -> Result<()> {
    let On { sandbox, .. } = on;
    let port = on.sandbox.port(8000);
    let before = port.get("/").await?.text();
    sandbox.suspend().await?;
    let after = port.get("/").await?.text();
    let visits = |text: &str| text.split(' ').rev().nth(1).unwrap().parse::<u64>().unwrap();
    assert_eq!(visits(&after), visits(&before) + 1);
    assert_eq!(sandbox.state().await?, State::Running);
    Ok(())
}

async fn a_link_cannot_be_made_for_a_sandbox_that_does_not_exist(on: &On) -> Result<()> {
    let On { dormouse, .. } = on;
    assert_eq!(code_of(dormouse.sandbox("no-such-sandbox").port(8000).link().await), "not_found");
    Ok(())
}
