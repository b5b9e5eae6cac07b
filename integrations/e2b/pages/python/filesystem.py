"""Filesystem: read and write, information, watching, upload and download."""

import tempfile
from pathlib import Path

import httpx
from e2b import FilesystemEventType, FileType, Sandbox

from pages import example, main, until


@example("Read a file")
def read() -> None:
    sandbox = Sandbox.create()
    sandbox.commands.run("echo content > my-file")
    assert sandbox.files.read("/home/user/my-file") == "content\n"
    sandbox.kill()


@example("Write one file")
def write() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("/home/user/my-file", "file content")
    assert sandbox.commands.run("cat my-file").stdout == "file content"
    sandbox.kill()


@example("Write several files")
def write_several() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write_files(
        [{"path": "dir/a", "data": "file content"}, {"path": "dir/b", "data": "other file content"}]
    )
    assert sorted(entry.name for entry in sandbox.files.list("dir")) == ["a", "b"]
    sandbox.kill()


@example("Information on a file")
def information() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("test_file.txt", "Hello, world!")
    info = sandbox.files.get_info("test_file.txt")
    assert (info.name, info.type, info.path) == ("test_file.txt", FileType.FILE, "/home/user/test_file.txt")
    assert (info.size, info.mode, info.permissions) == (13, 0o644, "-rw-r--r--")
    assert (info.owner, info.group) == ("user", "user")
    sandbox.kill()


@example("Information on a directory")
def directory() -> None:
    sandbox = Sandbox.create()
    sandbox.files.make_dir("test_dir")
    info = sandbox.files.get_info("test_dir")
    assert (info.type, info.permissions) == (FileType.DIR, "drwxr-xr-x")
    sandbox.kill()


@example("Metadata of a file")
def metadata() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("report.txt", "text", metadata={"author": "page"})
    assert sandbox.files.get_info("report.txt").metadata == {"author": "page"}
    sandbox.kill()


@example("Watch a directory")
def watch() -> None:
    sandbox = Sandbox.create()
    sandbox.files.make_dir("my-folder")
    handle = sandbox.files.watch_dir("my-folder")
    sandbox.files.write("my-folder/my-file", "hello")
    events = handle.get_new_events()
    assert any(event.type == FilesystemEventType.WRITE and event.name == "my-file" for event in events)
    handle.stop()
    sandbox.kill()


@example("Watch a directory and all below it")
def watch_recursively() -> None:
    sandbox = Sandbox.create()
    sandbox.files.make_dir("my-folder")
    handle = sandbox.files.watch_dir("my-folder", recursive=True)
    sandbox.files.write("my-folder/deep/my-file", "hello")
    seen: list[str] = []
    until(lambda: seen.extend(event.name for event in handle.get_new_events()) or "deep/my-file" in seen)
    handle.stop()
    sandbox.kill()


@example("Upload a file")
def upload() -> None:
    sandbox = Sandbox.create()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "file").write_bytes(b"\x00\x01")
        with (Path(place) / "file").open("rb") as file:
            sandbox.files.write("/home/user/my-file", file)
    assert bytes(sandbox.files.read("my-file", format="bytes")) == b"\x00\x01"
    sandbox.kill()


@example("Upload a directory")
def upload_directory() -> None:
    sandbox = Sandbox.create()
    with tempfile.TemporaryDirectory() as place:
        for name in ["one", "two"]:
            (Path(place) / name).write_text(name)
        files = [{"path": path.name, "data": path.read_text()} for path in Path(place).iterdir()]
        sandbox.files.write_files(files)
    assert sandbox.files.read("two") == "two"
    sandbox.kill()


@example("Upload with a signed URL")
def upload_url() -> None:
    sandbox = Sandbox.create(timeout=300, secure=True)
    url = sandbox.upload_url("demo.txt", use_signature_expiration=10_000)
    assert httpx.post(url, files={"file": b"hello"}).status_code == 200
    assert sandbox.files.read("demo.txt") == "hello"
    sandbox.kill()


@example("Download a file")
def download() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("my-file", "content")
    with tempfile.NamedTemporaryFile("w+") as local:
        local.write(sandbox.files.read("my-file"))
        local.flush()
        assert Path(local.name).read_text() == "content"
    sandbox.kill()


@example("Download with a signed URL")
def download_url() -> None:
    sandbox = Sandbox.create(timeout=300, secure=True)
    sandbox.files.write("my-file", "content")
    assert httpx.get(sandbox.download_url("my-file", use_signature_expiration=10_000)).text == "content"
    sandbox.kill()


if __name__ == "__main__":
    main()
