"""Options of the connection, and client objects that carry them."""

from __future__ import annotations

import inspect
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import e2b
import httpx
import pytest
from e2b import AuthenticationException, ConnectionConfig, InvalidArgumentException, SandboxException

from support.guest import all_items, output
from support.proxy import Proxy
from support.surface import Surface

Create = Callable[..., Any]


def test_key_and_addresses_can_be_given_to_a_call(
    api: Surface, create: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "api_key": os.environ["E2B_API_KEY"],
        "api_url": os.environ["E2B_API_URL"],
        "sandbox_url": os.environ["E2B_SANDBOX_URL"],
    }
    for name in ("E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"):
        monkeypatch.delenv(name)
    sandbox = create(**given)
    assert output(sandbox, "echo ready") == "ready"
    assert api.Sandbox.connect(sandbox.sandbox_id, **given).is_running()
    assert sandbox.pause() is True


def test_a_missing_key_is_named(api: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(AuthenticationException, match="API key is required"):
        api.Sandbox.create()


@pytest.mark.parametrize("key", ["e2b_" + "f" * 40, "e2b_0", "e2b_" + "0" * 4000])
def test_a_wrong_key_is_refused_by_every_call(api: Surface, sandbox: Any, key: str) -> None:
    id = sandbox.sandbox_id
    calls: list[Callable[..., Any]] = [
        lambda **o: api.Sandbox.create(**o),
        lambda **o: api.Sandbox.connect(id, **o),
        lambda **o: api.Sandbox.get_info(id, **o),
        lambda **o: api.Sandbox.kill(id, **o),
        lambda **o: api.Sandbox.pause(id, **o),
        lambda **o: api.Sandbox.set_timeout(id, 100, **o),
        lambda **o: api.Sandbox.fork(id, **o),
        lambda **o: api.Sandbox.create_snapshot(id, **o),
        lambda **o: api.Sandbox.get_metrics(id, **o),
        lambda **o: api.Sandbox.update_network(id, {}, **o),
        lambda **o: all_items(api.Sandbox.list(**o)),
        lambda **o: all_items(api.Sandbox.list_snapshots(**o)),
        lambda **o: api.Volume.list(**o),
        lambda **o: api.Template.exists("base", **o),
    ]
    for call in calls:
        with pytest.raises(AuthenticationException, match="401"):
            call(api_key=key)
    assert sandbox.is_running()


def test_the_check_of_the_form_of_keys_can_be_turned_off(api: Surface) -> None:
    with pytest.raises(AuthenticationException, match="401"):
        all_items(api.Sandbox.list(api_key="another form", validate_api_key=False))


def test_a_proxy_carries_requests_of_both_kinds(api: Surface, create: Create) -> None:
    with Proxy() as proxy:
        sandbox = create(proxy=proxy.url)
        before = len(proxy.passed)
        assert before > 0
        assert output(sandbox, "echo through") == "through"
        assert len(proxy.passed) > before or proxy.passed[0].startswith("CONNECT")


def test_headers_are_sent_along(create: Create) -> None:
    with Proxy() as proxy:
        create(headers={"X-Case": "one"}, api_headers={"X-Other": "two"}, proxy=proxy.url)
        assert proxy.passed


@pytest.mark.needs("ApiParams.retries")
def test_a_request_that_takes_too_long_is_given_up(api: Surface) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Exception, match=r"(?i)time"):
            api.Sandbox.get_info("i" * 20, api_url=silent_url, request_timeout=0.2, retries=0)


@pytest.mark.needs("ApiParams.retries")
def test_a_request_without_a_timeout_works(api: Surface, sandbox: Any) -> None:
    assert api.Sandbox.get_info(sandbox.sandbox_id, request_timeout=0).sandbox_id == sandbox.sandbox_id
    assert sandbox.get_info(request_timeout=30, retries=1).sandbox_id == sandbox.sandbox_id


def test_a_question_whether_it_runs_can_have_a_timeout(sandbox: Any) -> None:
    assert sandbox.is_running(request_timeout=30) is True


@pytest.mark.needs("ApiParams.retries")
@pytest.mark.parametrize("retries", [-1, True, "3"])
def test_a_number_of_retries_that_makes_no_sense_is_refused(api: Surface, retries: Any) -> None:
    with pytest.raises(InvalidArgumentException):
        all_items(api.Sandbox.list(retries=retries))


@pytest.mark.needs("ApiParams.retries")
def test_a_server_that_is_not_there_is_reported_promptly(api: Surface) -> None:
    begun = time.monotonic()
    with pytest.raises(Exception, match=r"(?i)connect|request"):
        all_items(api.Sandbox.list(api_url="http://127.0.0.1:9", retries=0))
    assert time.monotonic() - begun < 30


@pytest.mark.needs("ApiParams.http_version")
@pytest.mark.parametrize("version", ["1.1", "2"])
def test_both_versions_of_http_can_be_asked_for(create: Create, version: str) -> None:
    assert output(create(http_version=version), "echo ready") == "ready"


def test_a_domain_of_ones_own_is_that_of_hosts_without_one_from_the_server() -> None:
    config = ConnectionConfig(domain="sandboxes.example.com", sandbox_url=None, api_key="e2b_0")
    assert config.get_host("abc", "sandboxes.example.com", 80) == "80-abc.sandboxes.example.com"


def test_a_domain_does_not_matter_beside_both_addresses(create: Create) -> None:
    assert output(create(domain="sandboxes.example.com"), "echo ready") == "ready"


def test_the_debug_mode_of_the_client_never_asks_the_server(api: Surface) -> None:
    sandbox = api.Sandbox.create(debug=True, api_url="http://127.0.0.1:9")
    assert sandbox.sandbox_id == "debug_sandbox_id"
    assert sandbox.get_host(80) == "localhost:80"


def test_a_client_object_carries_the_options_of_its_calls(api: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(e2b, "E2B"):
        return
    client = e2b.E2B(
        api_key=os.environ["E2B_API_KEY"],
        api_url=os.environ["E2B_API_URL"],
        sandbox_url=os.environ["E2B_SANDBOX_URL"],
        request_timeout=60,
    )
    for name in ("E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"):
        monkeypatch.delenv(name)
    with api.bound(client, "Sandbox").create() as sandbox:
        assert output(sandbox, "echo ready") == "ready"
    assert isinstance(api.bound(client, "Volume").list(), list)
    assert api.bound(client, "Template").exists("base") is True


def test_the_configuration_of_a_sandbox_can_be_read(sandbox: Any) -> None:
    config = sandbox.connection_config
    takes_port = "port" in inspect.signature(ConnectionConfig.get_sandbox_url).parameters
    port = {"port": 80} if takes_port else {}
    assert config.api_url == os.environ["E2B_API_URL"]
    assert config.get_request_timeout(7) == 7
    assert config.get_api_params(request_timeout=3)["api_key"] == os.environ["E2B_API_KEY"]
    domain = sandbox.sandbox_domain
    assert config.get_sandbox_url(sandbox.sandbox_id, domain, **port) == os.environ["E2B_SANDBOX_URL"]
    assert config.get_sandbox_direct_url(sandbox.sandbox_id, domain, **port) == os.environ["E2B_SANDBOX_URL"]
    assert config.sandbox_headers["E2b-Sandbox-Id"] == sandbox.sandbox_id


def test_an_integration_names_itself(create: Create) -> None:
    ConnectionConfig.set_integration("cases/1.0")
    try:
        sandbox = create()
        assert sandbox.connection_config.sandbox_headers["User-Agent"].endswith("cases/1.0")
        assert output(sandbox, "echo ready") == "ready"
    finally:
        ConnectionConfig.set_integration(None)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v2/sandboxes", b"{"),
        ("POST", "/v2/sandboxes", b"[]"),
        ("POST", "/v2/sandboxes", b'{"templateID": 7}'),
        ("POST", "/v2/sandboxes", b'{"templateID": "base", "timeout": "long"}'),
        ("POST", "/v2/sandboxes", b""),
        ("POST", "/sandboxes", b"{}"),
        ("POST", "/v2/sandboxes", b'{"templateID": "' + b"x" * 3_000_000 + b'"}'),
    ],
)
def test_a_body_that_makes_no_sense_gets_an_error_of_the_right_form(
    server: str, method: str, path: str, body: bytes
) -> None:
    headers = {"X-API-Key": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    answer = httpx.request(method, server + path, content=body, headers=headers)
    assert 400 <= answer.status_code < 500
    assert answer.json()["code"] == answer.status_code
    assert answer.json()["message"]


@pytest.mark.parametrize("path", ["/", "/nothing", "/sandboxes/x/y/z", "/sandboxes/%2F", "/v9/sandboxes"])
def test_a_path_that_does_not_exist_gets_an_error_of_the_right_form(server: str, path: str) -> None:
    answer = httpx.get(server + path, headers={"X-API-Key": os.environ["E2B_API_KEY"]})
    assert answer.status_code == 404
    assert answer.json()["code"] == 404


def test_the_server_is_healthy(server: str) -> None:
    assert httpx.get(f"{server}/health").is_success


@pytest.mark.needs("ApiParams.retries")
def test_errors_have_the_status_that_the_server_sent(api: Surface) -> None:
    with pytest.raises(SandboxException) as refused:
        api.Sandbox.create(timeout=-1)
    assert refused.value.status_code == 400
