"""Ports of sandboxes, signed URLs of files, and the network."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from e2b import (
    ALL_TRAFFIC,
    InvalidArgumentException,
    SandboxException,
    SandboxNotFoundException,
    get_signature,
)

from support.guest import output, serve, visit, visit_by_host
from support.surface import Surface
from support.waiting import eventually

Create = Callable[..., Any]

ECHO = """
import http.server, json, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        told = {"path": self.path, "method": self.command, "body": body}
        told["headers"] = {name.lower(): value for name, value in self.headers.items()}
        answer = json.dumps(told).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(answer))); self.end_headers()
        self.wfile.write(answer)
    do_POST = do_PUT = do_GET
    def log_message(self, *rest): pass
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Answer).serve_forever()
"""
"""A web server that tells what it was asked."""


def serve_echo(sandbox: Any, port: int) -> None:
    sandbox.files.write("/tmp/echo.py", ECHO)
    sandbox.commands.run(f"python3 /tmp/echo.py {port}", background=True, timeout=0)
    eventually(lambda: visit(sandbox, port).status_code != 502)


def test_the_host_of_a_port_names_port_and_sandbox(sandbox: Any) -> None:
    host = sandbox.get_host(8000)
    assert host.startswith(f"8000-{sandbox.sandbox_id}.")
    assert host.removeprefix(f"8000-{sandbox.sandbox_id}.") == sandbox.sandbox_domain
    assert sandbox.envd_api_url == sandbox.envd_direct_url == os.environ["E2B_SANDBOX_URL"]


def test_headers_lead_to_a_port(create: Create) -> None:
    sandbox = create()
    serve_echo(sandbox, 8000)
    told = visit(sandbox, 8000, "/a/b?c=d", method="POST", content=b"sent", headers={"X-Mine": "yes"}).json()
    assert (told["path"], told["method"], told["body"]) == ("/a/b?c=d", "POST", "sent")
    assert told["headers"]["x-mine"] == "yes"


def test_a_host_leads_to_a_port_over_https(create: Create) -> None:
    sandbox = create()
    serve_echo(sandbox, 8000)
    told = visit_by_host(sandbox, 8000, "/path").json()
    assert told["path"] == "/path"
    assert told["headers"]["host"] == sandbox.get_host(8000)


def test_a_port_on_which_nothing_listens_is_told_from_a_missing_sandbox(sandbox: Any, unique: str) -> None:
    answer = visit(sandbox, 9)
    assert answer.status_code == 502
    assert answer.json() == {
        "sandboxId": sandbox.sandbox_id,
        "message": "The sandbox is running but port is not open",
        "port": 9,
        "code": 502,
    }


def test_a_port_of_a_missing_sandbox_is_answered_as_such(create: Create) -> None:
    sandbox = create()
    sandbox.kill()
    answer = visit(sandbox, 8000)
    assert (answer.status_code, answer.json()) == (
        502,
        {"sandboxId": sandbox.sandbox_id, "message": "The sandbox was not found", "code": 502},
    )


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "http", "80 80"])
def test_a_port_that_cannot_exist_is_refused(sandbox: Any, port: str) -> None:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": port}
    assert httpx.get(os.environ["E2B_SANDBOX_URL"], headers=headers).status_code == 400


@pytest.mark.parametrize("missing", ["E2b-Sandbox-Id", "E2b-Sandbox-Port"])
def test_one_of_the_two_headers_alone_is_refused(sandbox: Any, missing: str) -> None:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8000"}
    del headers[missing]
    assert httpx.get(os.environ["E2B_SANDBOX_URL"], headers=headers).status_code == 400


def test_a_long_answer_streams(create: Create) -> None:
    sandbox = create()
    sandbox.files.write("/home/user/large", os.urandom(20_000_000))
    serve(sandbox)
    assert len(visit(sandbox, 8000, "/large").content) == 20_000_000


def test_a_private_port_needs_the_token(create: Create) -> None:
    sandbox = create(network={"allow_public_traffic": False})
    assert sandbox.traffic_access_token
    sandbox.commands.run("python3 -m http.server 8000", background=True, timeout=0)
    eventually(lambda: "open" in output(sandbox, "(exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null && echo open || true"))
    missing = visit(sandbox, 8000)
    assert (missing.status_code, missing.json()["message"]) == (
        403,
        "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing",
    )
    wrong = visit(sandbox, 8000, headers={"e2b-traffic-access-token": "wrong"})
    assert wrong.status_code == 403
    assert "is invalid" in wrong.json()["message"]
    right = visit(sandbox, 8000, headers={"e2b-traffic-access-token": sandbox.traffic_access_token})
    assert right.status_code == 200
    assert sandbox.get_info().network["allow_public_traffic"] is False


def test_a_program_behind_a_port_does_not_see_the_token_of_its_sandbox(create: Create) -> None:
    sandbox = create()
    serve_echo(sandbox, 8000)
    api, key = os.environ["E2B_API_URL"], os.environ["E2B_API_KEY"]
    detail = httpx.get(f"{api}/sandboxes/{sandbox.sandbox_id}", headers={"X-API-Key": key}).json()
    token = detail["envdAccessToken"]
    assert visit(sandbox, 49983, "/envs", headers={"X-Access-Token": token}).is_success
    told = visit(sandbox, 8000, headers={"X-Access-Token": token, "X-Mine": "yes"}).json()["headers"]
    assert told["x-mine"] == "yes"
    assert token not in told.values()
    # A program may have tokens of its own in this header.
    told = visit(sandbox, 8000, headers={"X-Access-Token": "mine"}).json()["headers"]
    assert told["x-access-token"] == "mine"


def test_public_ports_have_no_token(sandbox: Any) -> None:
    assert sandbox.traffic_access_token is None


def test_a_program_sees_the_host_that_masks_its_own(create: Create) -> None:
    sandbox = create(network={"mask_request_host": "${PORT}-app.example.com", "allow_public_traffic": True})
    serve_echo(sandbox, 8000)
    assert visit(sandbox, 8000).json()["headers"]["host"] == "8000-app.example.com"
    assert sandbox.get_info().network["mask_request_host"] == "${PORT}-app.example.com"


def test_a_signed_url_downloads_a_file(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/a note ü", "signed")
    answer = httpx.get(sandbox.download_url(f"{home}/a note ü"))
    assert (answer.status_code, answer.text) == (200, "signed")
    assert answer.headers["Content-Disposition"].startswith("inline")


def test_a_part_of_a_file_is_downloaded(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "0123456789")
    answer = httpx.get(sandbox.download_url(f"{home}/note"), headers={"Range": "bytes=2-4"})
    assert (answer.status_code, answer.text) == (206, "234")


def test_a_signed_url_uploads_a_file(sandbox: Any, home: str) -> None:
    url = sandbox.upload_url(f"{home}/note")
    answer = httpx.post(url, files={"file": ("ignored", b"uploaded")})
    assert answer.status_code == 200, answer.text
    assert answer.json() == [{"name": "note", "path": f"{home}/note", "type": "file"}]
    assert sandbox.files.read(f"{home}/note") == "uploaded"


def test_a_signed_url_is_for_one_user_and_operation(sandbox: Any, unique: str) -> None:
    path = f"/root/{unique}"
    assert httpx.post(sandbox.upload_url(path, user="root"), files={"file": b"x"}).status_code == 200
    assert httpx.get(sandbox.download_url(path, user="root")).text == "x"
    assert httpx.get(sandbox.upload_url(path, user="root")).status_code == 401
    changed = sandbox.download_url(path, user="root").replace(unique, "other")
    assert httpx.get(changed).status_code == 401


def test_a_signed_url_holds_until_it_expires(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    assert httpx.get(sandbox.download_url(f"{home}/note", use_signature_expiration=60)).status_code == 200
    uploaded = httpx.post(sandbox.upload_url(f"{home}/new", use_signature_expiration=60), files={"file": b"x"})
    assert uploaded.status_code == 200
    expired = httpx.get(sandbox.download_url(f"{home}/note", use_signature_expiration=-60))
    assert (expired.status_code, expired.json()) == (
        401,
        {"code": 401, "message": "signature is already expired"},
    )


def test_a_url_without_its_signature_is_refused(sandbox: Any, home: str) -> None:
    url = httpx.URL(sandbox.download_url(f"{home}/note"))
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    answer = httpx.get(url.copy_remove_param("signature"), headers=headers)
    assert (answer.status_code, answer.json()["message"]) == (401, "missing signature query parameter")
    wrong = httpx.get(url.copy_set_param("signature", "v1_wrong"), headers=headers)
    assert (wrong.status_code, wrong.json()["message"]) == (401, "invalid signature")


def test_a_signature_is_what_the_client_computes(sandbox: Any, home: str) -> None:
    sandbox.files.write(f"{home}/note", "text")
    token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"
    signed = get_signature("hello.txt", "read", "user", token, expiration_in_seconds=None)
    assert signed["signature"] == "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E"
    later = get_signature("hello.txt", "read", "user", token, 60)
    assert later["expiration"] == pytest.approx(time.time() + 60, abs=5)


def reaches(sandbox: Any, address: str) -> bool:
    command = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/8000' 2> /dev/null && echo yes || echo no"
    return output(sandbox, command) == "yes"


@pytest.fixture(scope="session")
def internet() -> str:
    """A public address with a server on port 8000."""
    if "E2B_CASES_INTERNET" not in os.environ:
        pytest.fail("set E2B_CASES_INTERNET to a public address with a server on port 8000")
    return os.environ["E2B_CASES_INTERNET"]


def test_a_sandbox_reaches_the_internet_unless_told_otherwise(sandbox: Any, internet: str) -> None:
    assert reaches(sandbox, internet)


def test_a_sandbox_without_internet_reaches_nothing(create: Create, internet: str) -> None:
    assert not reaches(create(allow_internet_access=False), internet)


def test_what_is_denied_is_not_reached(create: Create, internet: str) -> None:
    sandbox = create(network={"deny_out": [internet]})
    assert not reaches(sandbox, internet)
    assert sandbox.get_info().network["deny_out"] == [internet]


def test_what_is_allowed_is_reached_although_all_is_denied(create: Create, internet: str) -> None:
    sandbox = create(network={"deny_out": lambda context: [context.all_traffic], "allow_out": [f"{internet}/32"]})
    assert reaches(sandbox, internet)
    network = sandbox.get_info().network
    assert (network["deny_out"], network["allow_out"]) == ([ALL_TRAFFIC], [f"{internet}/32"])


def test_a_network_can_be_changed_while_a_sandbox_runs(api: Surface, create: Create, internet: str) -> None:
    sandbox = create()
    sandbox.update_network({"deny_out": [ALL_TRAFFIC]})
    assert not reaches(sandbox, internet)
    api.Sandbox.update_network(sandbox.sandbox_id, {"allow_out": [internet], "deny_out": [ALL_TRAFFIC]})
    assert reaches(sandbox, internet)
    sandbox.update_network({"allow_internet_access": False})
    assert not reaches(sandbox, internet)
    sandbox.update_network({})
    assert reaches(sandbox, internet)


def test_a_network_holds_after_a_pause(create: Create, internet: str) -> None:
    sandbox = create(network={"deny_out": [ALL_TRAFFIC]})
    sandbox.pause()
    sandbox.connect()
    assert not reaches(sandbox, internet)
    assert sandbox.get_info().network["deny_out"] == [ALL_TRAFFIC]


def test_names_can_be_allowed_if_all_else_is_denied(create: Create) -> None:
    network = {"allow_out": ["*.example.com", "api.example.org"], "deny_out": [ALL_TRAFFIC]}
    assert create(network=network).get_info().network["allow_out"] == ["*.example.com", "api.example.org"]
    with pytest.raises(SandboxException, match="^400: "):
        create(network={"allow_out": ["api.example.org"]})


def rules_network(value: str) -> dict[str, Any]:
    return {
        "rules": {"api.example.com": [{"transform": {"headers": {"Authorization": value}}}]},
        "allow_out": lambda context: list(context.rules),
        "deny_out": [ALL_TRAFFIC],
    }


def test_rules_for_headers_name_secrets_of_the_project(create: Create) -> None:
    sandbox = create(network=rules_network("Bearer {CASES}"))
    assert sandbox.get_info().network["allow_out"] == ["api.example.com"]
    sandbox.update_network(rules_network("{CASES}"))
    assert sandbox.get_info().network["allow_out"] == ["api.example.com"]


def test_a_header_with_a_value_of_its_own_is_refused(sandbox: Any, create: Create) -> None:
    refused = "header 'Authorization' for api.example.com has a value of its own.*dorm secret set"
    with pytest.raises(SandboxException, match=refused):
        create(network=rules_network("Bearer abc"))
    with pytest.raises(SandboxException, match=refused):
        sandbox.update_network(rules_network("Bearer abc"))


@pytest.mark.parametrize("entry", ["no address", "1.2.3.4/99", "http://example.com", "1.2.3", ""])
@pytest.mark.parametrize("key", ["allow_out", "deny_out"])
def test_an_entry_that_names_nothing_is_refused(create: Create, key: str, entry: str) -> None:
    with pytest.raises(SandboxException, match="^400: "):
        create(network={"deny_out": [ALL_TRAFFIC], key: [entry]})


REFUSED = {
    "egress_proxy": {"address": "proxy.example.com:1080", "username": "a", "password": "b"},
    "dns_servers": ["1.1.1.1"],
    "https_ports": [8443],
}
"""Options of the network that this server does not have."""


HTTPS = pytest.param("https_ports", marks=pytest.mark.needs("SandboxNetworkOpts.https_ports"))
DNS = pytest.param("dns_servers", marks=pytest.mark.needs("SandboxNetworkOpts.dns_servers"))


@pytest.mark.parametrize("option", ["egress_proxy", DNS, HTTPS])
def test_an_option_that_the_server_does_not_have_is_refused_by_name(create: Create, option: str) -> None:
    with pytest.raises(SandboxException) as refused:
        create(network={"deny_out": [], option: REFUSED[option]})
    words = {"egress_proxy": "egressProxy", "dns_servers": "dnsServers", "https_ports": "httpsPorts"}
    assert words[option] in str(refused.value)


@pytest.mark.needs("SandboxEgressProxyOpts.tls")
@pytest.mark.parametrize("tls", [True, {"server_name": "proxy.example.com", "ca_cert": "-----BEGIN"}])
def test_a_proxy_with_tls_is_refused_by_name(create: Create, tls: Any) -> None:
    proxy = {"address": "proxy.example.com:1080", "tls": tls}
    with pytest.raises(SandboxException, match="egressProxy"):
        create(network={"egress_proxy": proxy})


@pytest.mark.parametrize("option", ["egress_proxy", DNS])
def test_a_change_to_what_the_server_does_not_have_is_refused(sandbox: Any, option: str) -> None:
    with pytest.raises(SandboxException):
        sandbox.update_network({option: REFUSED[option]})


def test_the_network_of_an_unknown_sandbox_cannot_be_changed(api: Surface, unique: str) -> None:
    with pytest.raises(SandboxNotFoundException):
        api.Sandbox.update_network(unique, {})


def test_an_expiration_needs_a_secured_sandbox(sandbox: Any) -> None:
    # Every sandbox of this server is secured, so this is never refused.
    try:
        assert "signature_expiration=" in sandbox.download_url("note", use_signature_expiration=10)
    except InvalidArgumentException:
        pytest.fail("the sandbox has no access token")


def test_many_requests_at_once_are_answered(create: Create) -> None:
    sandbox = create()
    serve(sandbox)
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(visit(sandbox, 8000).status_code)) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 30


@pytest.mark.parametrize("path", ["/init", "/freeze", "/unfreeze", "/collapse", "/upgrade"])
def test_internal_routes_do_not_exist_outside(sandbox: Any, path: str) -> None:
    assert visit(sandbox, 49983, path, method="POST").status_code in (401, 404)


def test_a_preflight_of_a_browser_passes(sandbox: Any) -> None:
    headers = {"Origin": "https://app.example.com", "Access-Control-Request-Method": "POST"}
    headers["Access-Control-Request-Headers"] = "x-access-token,content-type,connect-protocol-version"
    answer = visit(sandbox, 49983, "/process.Process/Start", method="OPTIONS", headers=headers)
    assert answer.is_success
    assert answer.headers["Access-Control-Allow-Origin"] in ("*", "https://app.example.com")


def test_a_wrong_access_token_is_refused(sandbox: Any) -> None:
    for headers in ({}, {"X-Access-Token": "wrong"}):
        answer = visit(sandbox, 49983, "/envs", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, 401)
