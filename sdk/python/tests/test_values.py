"""Conversions that need no daemon."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import PurePosixPath
from typing import Any

import pytest

from dormouse import Position, types
from dormouse._config import Config
from dormouse._operations import CREATE_SANDBOX, GET_SANDBOX, LIST_SANDBOXES, READ_FILE, SUSPEND_SANDBOX
from dormouse._process import Exit, Output, TextSplitter, command_event
from dormouse._request import Request
from dormouse._sse import EventParser, ServerSentEvent
from dormouse._values import command, decode, encode, millis, seconds, size, text


@pytest.mark.parametrize(
    ("given", "expected"), [(None, None), (1.5, 1.5), (3, 3), (timedelta(minutes=2), 120.0)]
)
def test_a_duration_is_a_timedelta_or_seconds(given: Any, expected: float | None) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (7, 7),
        ("7", 7),
        ("2K", 2048),
        ("512M", 512 << 20),
        ("1.5 GiB", 3 << 29),
        ("1tb", 1 << 40),
    ],
)
def test_a_size_is_bytes_or_a_text_with_a_unit(given: Any, expected: int | None) -> None:
    assert size(given) == expected


@pytest.mark.parametrize("given", ["", "G", "-1", "2X", "1 000"])
def test_other_texts_are_no_sizes(given: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        size(given)


def test_cpus_are_sent_as_thousandths() -> None:
    assert (millis(0.5), millis(2), millis(None)) == (500, 2000, None)


def test_texts_that_are_not_utf8_are_sent_as_base64_and_read_with_surrogates() -> None:
    assert text(PurePosixPath("/ä")) == "/ä"
    assert text(b"/\xff") == {"base64": "L/8="}
    assert text("/\udcff") == {"base64": "L/8="}
    assert decode(str, {"base64": "L/8="}) == "/\udcff"


def test_a_command_is_a_line_or_arguments() -> None:
    assert command("ls | wc") == {"shell": "ls | wc"}
    assert command(["ls", b"\xff"]) == {"argv": ["ls", {"base64": "/w=="}]}
    with pytest.raises(TypeError):
        command(b"ls")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "microsecond"),
    [
        ("2026-01-02T03:04:05Z", 0),
        ("2026-01-02T03:04:05.5Z", 500_000),
        ("2026-01-02T03:04:05.123456789Z", 123_456),
    ],
)
def test_times_have_any_number_of_digits(given: str, microsecond: int) -> None:
    expected = datetime(2026, 1, 2, 3, 4, 5, microsecond, tzinfo=timezone.utc)
    assert decode(datetime, given) == expected


def test_unknown_fields_of_responses_are_ignored_and_missing_ones_have_defaults() -> None:
    exit_status = decode(types.ExitStatus, {"timed_out": False, "exit_code": 1, "new_field": {}})
    assert exit_status == types.ExitStatus(exit_code=1, signal=None, timed_out=False)


def test_words_of_later_versions_are_kept_as_they_are() -> None:
    event = decode(types.WatchEvent, {"kind": "teleported", "path": "/a"})
    assert event.kind == "teleported"  # type: ignore[comparison-overlap]


def test_data_classes_are_sent_without_what_is_not_set() -> None:
    child = types.ForkChild(name="a", timeout_secs=timedelta(minutes=1), secrets={"TOKEN": None})
    assert encode(child) == {"name": "a", "secrets": {"TOKEN": None}, "timeout_secs": 60.0}
    assert encode(types.ResourcesRequest(memory_bytes="1G")) == {"memory_bytes": 1 << 30}
    assert encode(types.BuildCopy(from_=["a"], to="/b")) == {"from": ["a"], "to": "/b"}


def test_a_request_has_the_path_of_its_operation() -> None:
    assert GET_SANDBOX("a/b c").path == "/v1/sandboxes/a%2Fb%20c"
    for segment in ("", ".", ".."):
        with pytest.raises(ValueError, match="is empty"):
            GET_SANDBOX(segment)


def test_a_request_leaves_out_what_is_none() -> None:
    request = LIST_SANDBOXES(query={"state": None, "limit": 5, "label": ["a=b"], "all": True})
    assert request.query == {"limit": 5, "label": ["a=b"], "all": "true"}
    assert CREATE_SANDBOX(body={"image": "base", "name": None}).body == {"image": "base"}


def test_only_safe_requests_are_repeated() -> None:
    key = {"Idempotency-Key": "k"}
    repeatable: list[Request] = [GET_SANDBOX("a"), CREATE_SANDBOX(body={}, headers=key)]
    assert all(request.is_repeatable for request in repeatable)
    once: list[Request] = [
        SUSPEND_SANDBOX("a"),
        CREATE_SANDBOX(body={}),
        CREATE_SANDBOX(content=iter([b""]), headers=key),
    ]
    assert not any(request.is_repeatable for request in once)


def test_a_request_gets_only_the_headers_that_its_operation_accepts() -> None:
    headers = {"X-Dormouse-Wake": "any", "If-Match": '"1"'}
    assert READ_FILE("a").accepting(headers).headers == {"X-Dormouse-Wake": "any"}
    assert SUSPEND_SANDBOX("a").accepting(headers).headers == {"If-Match": '"1"'}


def config(server: str) -> Config:
    return Config.new(server, "key", None, None, 1.0, 0, 0.0)


def test_a_server_is_an_address_or_a_socket() -> None:
    assert config("unix:/var/lib/dormouse/api.sock").socket == "/var/lib/dormouse/api.sock"
    assert config("unix:///var/lib/dormouse/api.sock").socket == "/var/lib/dormouse/api.sock"
    assert config("http://127.0.0.1:7070/").base_url == "http://127.0.0.1:7070"
    with pytest.raises(ValueError, match="does not begin with"):
        config("127.0.0.1:7070")


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("http://127.0.0.1:7070", "http://8000-x.localhost:7070/"),
        ("http://[::1]:7070", "http://8000-x.localhost:7070/"),
        ("https://sandboxes.example.org", "https://8000-x.sandboxes.example.org/"),
    ],
)
def test_the_url_of_a_port_has_the_domain_of_the_server(server: str, url: str) -> None:
    assert config(server).port_url("8000-x") == url


def test_an_api_key_is_not_shown() -> None:
    key = types.CreatedKey(
        id="a", key="very secret", name="n", scope="full", created_at=datetime.now(timezone.utc)
    )
    assert "very secret" not in repr(key)


STREAM = (
    ': hello\n\nevent: stdout\ndata: {"a":1}\nid: 7,0\n\n:\n'
    "event: exit\r\ndata:x\r\ndata: ü\r\n\r\ndata: half"
)


@pytest.mark.parametrize("length", range(1, 30))
def test_events_are_the_same_wherever_the_stream_is_cut(length: int) -> None:
    data, parser = STREAM.encode(), EventParser()
    pieces = [data[begin : begin + length] for begin in range(0, len(data), length)]
    assert [event for piece in pieces for event in parser.feed(piece)] == [
        ServerSentEvent("stdout", '{"a":1}', "7,0"),
        ServerSentEvent("exit", "x\nü", None),
    ]


def test_characters_are_complete_where_output_is_cut_inside_of_them() -> None:
    data, splitter = "aé€😀".encode(), TextSplitter("stdout")
    events = [Output("stdout", data[at : at + 1], at, None, Position(at + 1, 0)) for at in range(len(data))]
    texts = [splitter.add(event) for event in events]
    assert [text for text in texts if text] == ["a", "é", "€", "😀"]
    assert splitter.add(Exit(types.ExitStatus(timed_out=False), Position())) == ""


def test_a_character_that_never_ends_is_replaced() -> None:
    splitter = TextSplitter("stderr")
    assert splitter.add(Output("stderr", b"\xe2\x82", 0, None, Position())) == ""
    assert splitter.add(Exit(types.ExitStatus(timed_out=False), Position())) == "\ufffd"


def test_events_of_later_versions_are_skipped() -> None:
    assert command_event(ServerSentEvent("weather", "{}", None)) is None


@dataclass(frozen=True)
class Nested:
    items: list[dict[str, types.ExitStatus | None]]


def test_containers_are_decoded_to_any_depth() -> None:
    assert decode(Nested, {"items": [{"a": None, "b": {"timed_out": True}}]}) == Nested(
        [{"a": None, "b": types.ExitStatus(timed_out=True)}]
    )
