"""Volumes: directories that outlive sandboxes."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from e2b import VolumeException, VolumeFileType, VolumeNotFoundException, VolumePathNotFoundException

from support.guest import output
from support.proxy import Proxy
from support.surface import Surface

Create = Callable[..., Any]


@pytest.fixture
def volume(api: Surface, unique: str) -> Iterator[Any]:
    volume = api.Volume.create(unique)
    yield volume
    api.Volume.destroy(volume.volume_id)


def test_a_volume_has_a_name_an_id_and_a_token(volume: Any, unique: str) -> None:
    assert volume.name == unique
    assert volume.volume_id
    assert volume.token


def test_volumes_are_listed(api: Surface, volume: Any) -> None:
    assert (volume.volume_id, volume.name) in [(one.volume_id, one.name) for one in api.Volume.list()]


def test_information_on_a_volume_has_its_token(api: Surface, volume: Any) -> None:
    info = api.Volume.get_info(volume.volume_id)
    assert (info.volume_id, info.name) == (volume.volume_id, volume.name)
    assert info.token


def test_a_volume_can_be_connected_to(api: Surface, volume: Any) -> None:
    volume.write_file("/note", "text")
    assert api.Volume.connect(volume.volume_id).read_file("/note") == "text"


def test_a_destroyed_volume_is_gone(api: Surface, unique: str) -> None:
    volume = api.Volume.create(unique)
    assert api.Volume.destroy(volume.volume_id) is True
    assert api.Volume.destroy(volume.volume_id) is False
    with pytest.raises(VolumeNotFoundException):
        api.Volume.get_info(volume.volume_id)
    with pytest.raises(VolumeNotFoundException):
        api.Volume.connect(volume.volume_id)


@pytest.mark.parametrize("name", ["", "with space", "a/b", "../x", "ü", "x" * 1000])
def test_a_name_that_no_volume_can_have_is_refused(api: Surface, name: str) -> None:
    with pytest.raises(VolumeException, match="400"):
        api.Volume.create(name)


def test_a_name_is_given_once(api: Surface, volume: Any) -> None:
    with pytest.raises(VolumeException, match="409|400"):
        api.Volume.create(volume.name)


@pytest.mark.parametrize("data", ["text ü", b"\x00\xff", "", "x" * 3_000_000])
def test_a_file_is_read_as_it_was_written(volume: Any, data: Any) -> None:
    stat = volume.write_file("/dir/file", data, force=True)
    raw = data.encode() if isinstance(data, str) else data
    assert (stat.name, stat.path, stat.size) == ("file", "/dir/file", len(raw))
    assert volume.read_file("/dir/file", format="bytes") == raw
    assert b"".join(volume.read_file("/dir/file", format="stream", stream_idle_timeout=30)) == raw


def test_text_is_the_usual_format(volume: Any) -> None:
    volume.write_file("/note", "text")
    assert volume.read_file("/note") == volume.read_file("/note", format="text") == "text"


@pytest.mark.parametrize("source", [io.BytesIO, io.StringIO])
def test_a_file_object_is_uploaded(volume: Any, source: Any) -> None:
    volume.write_file("/note", source("text" if source is io.StringIO else b"text"))
    assert volume.read_file("/note") == "text"


def test_owner_and_mode_of_a_file_can_be_chosen_and_changed(volume: Any) -> None:
    stat = volume.write_file("/note", "text", uid=1234, gid=2345, mode=0o640)
    assert (stat.uid, stat.gid, stat.mode & 0o7777) == (1234, 2345, 0o640)
    stat = volume.update_metadata("/note", uid=1, gid=2, mode=0o600)
    assert (stat.uid, stat.gid, stat.mode & 0o7777) == (1, 2, 0o600)


def test_owner_and_mode_of_a_directory_can_be_chosen(volume: Any) -> None:
    stat = volume.make_dir("/dir", uid=1234, gid=2345, mode=0o700)
    assert (stat.type, stat.uid, stat.gid, stat.mode & 0o7777) == (
        VolumeFileType.DIRECTORY,
        1234,
        2345,
        0o700,
    )


def test_directories_above_are_made_by_force(volume: Any) -> None:
    with pytest.raises((VolumePathNotFoundException, VolumeException)):
        volume.make_dir("/a/b/c", force=False)
    assert volume.make_dir("/a/b/c", force=True).path == "/a/b/c"
    assert volume.make_dir("/a/b/c", force=True).path == "/a/b/c"


def test_directories_are_listed_as_deep_as_told(volume: Any) -> None:
    volume.write_file("/one/two/three", "deep", force=True)
    volume.write_file("/note", "text")
    assert sorted(entry.path for entry in volume.list("/")) == ["/note", "/one"]
    assert sorted(entry.path for entry in volume.list("/", depth=3)) == [
        "/note",
        "/one",
        "/one/two",
        "/one/two/three",
    ]


def test_information_on_a_path_is_complete(volume: Any) -> None:
    volume.write_file("/note", "12345")
    stat = volume.get_info("/note")
    assert (stat.name, stat.type, stat.size) == ("note", VolumeFileType.FILE, 5)
    assert stat.mtime.year >= 2024
    assert volume.get_info("/").type == VolumeFileType.DIRECTORY


def test_existence_is_told(volume: Any) -> None:
    volume.write_file("/note", "text")
    assert volume.exists("/note") is True
    assert volume.exists("/other") is False


def test_paths_are_removed(volume: Any) -> None:
    volume.write_file("/dir/note", "text", force=True)
    volume.remove("/dir")
    assert volume.exists("/dir") is False


def test_a_missing_path_is_named(volume: Any) -> None:
    for call in (volume.read_file, volume.get_info, volume.list, volume.remove, volume.update_metadata):
        with pytest.raises(VolumePathNotFoundException, match="/none"):
            call("/none")


@pytest.mark.parametrize("path", ["/../../etc/passwd", "../x", "/a\0b"])
def test_a_path_outside_is_refused(volume: Any, path: str) -> None:
    with pytest.raises((VolumeException, VolumePathNotFoundException, ValueError)):
        volume.read_file(path)
    assert volume.list("/") == []


def test_a_wrong_token_is_refused(volume: Any) -> None:
    with pytest.raises(Exception, match="401|403"):
        volume.get_info("/", token="wrong")


def test_every_option_of_the_connection_is_accepted(volume: Any, caplog: Any) -> None:
    with Proxy() as proxy, caplog.at_level(logging.INFO, logger="cases.volume"):
        volume.write_file(
            "/note",
            "text",
            api_url=os.environ["E2B_VOLUME_API_URL"],
            domain="example.com",
            debug=False,
            request_timeout=30,
            headers={"X-Case": "one"},
            proxy=proxy.url,
            logger=logging.getLogger("cases.volume"),
        )
        assert proxy.passed
    assert caplog.records
    assert volume.read_file("/note", token=volume.token) == "text"


@pytest.mark.needs("VolumeApiParams.http_version")
def test_a_version_of_http_can_be_asked_for(volume: Any) -> None:
    volume.write_file("/note", "text", http_version="1.1")
    assert volume.read_file("/note", http_version="2") == "text"


def test_the_configuration_of_volumes_can_be_read() -> None:
    from e2b import VolumeConnectionConfig

    config = VolumeConnectionConfig(token="secret", api_url="http://127.0.0.1:9", request_timeout=5)
    assert config.get_request_timeout(7) == 7
    assert config.get_api_params(domain="example.com")["token"] == "secret"


def test_a_volume_is_a_directory_of_a_sandbox(volume: Any, create: Create) -> None:
    volume.write_file("/note", "from outside")
    sandbox = create(volume_mounts={"/mnt/data": volume})
    assert sandbox.files.read("/mnt/data/note") == "from outside"
    output(sandbox, "echo from inside > /mnt/data/answer", user="root")
    assert volume.read_file("/answer") == "from inside\n"
    assert sandbox.get_info().volume_mounts == [{"name": volume.name, "path": "/mnt/data"}]


def test_a_volume_can_be_mounted_by_its_name(volume: Any, create: Create) -> None:
    sandbox = create(volume_mounts={"/mnt/data": volume.name})
    output(sandbox, "touch /mnt/data/made", user="root")
    assert volume.exists("/made")


def test_files_of_a_volume_outlive_a_sandbox(volume: Any, create: Create) -> None:
    first = create(volume_mounts={"/mnt/data": volume})
    output(first, "echo kept > /mnt/data/note", user="root")
    first.kill()
    second = create(volume_mounts={"/mnt/data": volume})
    assert second.files.read("/mnt/data/note") == "kept\n"


def test_a_volume_stays_mounted_after_a_pause(volume: Any, create: Create) -> None:
    sandbox = create(volume_mounts={"/mnt/data": volume})
    sandbox.pause()
    volume.write_file("/note", "meanwhile")
    sandbox.connect()
    assert sandbox.files.read("/mnt/data/note") == "meanwhile"


def test_a_volume_that_does_not_exist_is_named(create: Create, unique: str) -> None:
    with pytest.raises(Exception, match=f"40[04].*{unique}"):
        create(volume_mounts={"/mnt/data": unique})


@pytest.mark.parametrize("path", ["relative", "", "/", "/proc"])
def test_a_place_where_no_volume_can_be_is_refused(volume: Any, create: Create, path: str) -> None:
    with pytest.raises(Exception, match="400"):
        create(volume_mounts={path: volume})
