//! The egress of a sandbox is closed but for one host with a header rule: its record, the host and
//! the guest agree about it, whenever the daemon dies.

use anyhow::Result;
use dorm_testing::Daemon;
use serde_json::{Value, json};

use crate::report::Kind;
use crate::world::Fault;

/// Asks for the address of a name, and prints the code of the reply: 5 for a refusal.
const ASK: &str = "import socket\n\
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asking.settimeout(60)\n\
    asking.sendto(b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\4none\\7invalid\\0\\0\\1\\0\\1', ('10.0.0.1', 53))\n\
    print(asking.recv(512)[3] & 15)\n";

fn closed() -> Value {
    let header = json!({ "host": "api.example.com", "port": 443, "name": "Authorization", "value": "Bearer {TOKEN}" });
    json!({ "ordered": { "rules": [{ "allow": "api.example.com" }], "default": "deny", "headers": [header] } })
}

pub(super) async fn close(daemon: &Daemon, id: &str) -> Result<Value> {
    daemon.post(&format!("/sandboxes/{id}/egress"), json!({ "egress": closed() })).await
}

/// Checks a running sandbox, and opens its egress again. `told` is the record as first read.
pub(super) async fn judge(
    daemon: &Daemon,
    id: &str,
    told: &Value,
    is_done: bool,
    faults: &mut Vec<Fault>,
) -> Result<()> {
    if is_done && told["egress"] != closed() {
        faults.push((Kind::DataLost, format!("the egress of sandbox {id} is {}, not closed", told["egress"])));
    }
    let record = daemon.describe(id).await?;
    let (_, code) = daemon.exec(id, &["python3", "-c", ASK]).await?;
    let is_closed = record["egress"] == closed();
    let (missing, said) = daemon.exec(id, &["cat", "/run/dormouse/ca.pem"]).await?;
    if is_closed && missing != 0 {
        let what = format!("sandbox {id} has a header rule and no certificate: {said}");
        faults.push((Kind::DataLost, what));
    }
    if is_closed != (code.trim() == "5") {
        let what = format!("the egress of sandbox {id} is {} and a name is answered with {code}", record["egress"]);
        faults.push((Kind::DataLost, what));
    }
    daemon.post(&format!("/sandboxes/{id}/egress"), json!({ "egress": "public" })).await?;
    Ok(())
}
