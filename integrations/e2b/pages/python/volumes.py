"""Volumes: managing, mounting, reading and writing, information."""

from e2b import Sandbox, Volume, VolumeFileType

from pages import example, main


@example("Create, connect, list, information, destroy")
def manage() -> None:
    volume = Volume.create("page-manage")
    assert Volume.connect(volume.volume_id).name == "page-manage"
    assert volume.volume_id in [one.volume_id for one in Volume.list()]
    assert Volume.get_info(volume.volume_id).name == "page-manage"
    assert Volume.destroy(volume.volume_id) is True


@example("Mount")
def mount() -> None:
    volume = Volume.create("page-mount")
    for by in (volume, "page-mount"):
        sandbox = Sandbox.create(volume_mounts={"/mnt/my-data": by})
        sandbox.files.write("/mnt/my-data/hello.txt", "Hello, world!")
        sandbox.kill()
        assert volume.read_file("/hello.txt") == "Hello, world!"
    Volume.destroy(volume.volume_id)


@example("Read and write files")
def files() -> None:
    volume = Volume.create("page-files")
    volume.write_file("/file", "file content")
    assert volume.read_file("/file") == "file content"
    volume.make_dir("/a/b", force=True)
    assert [entry.name for entry in volume.list("/")] == ["a", "file"]
    volume.remove("/a")
    assert not volume.exists("/a")
    Volume.destroy(volume.volume_id)


@example("Information and metadata of files")
def information() -> None:
    volume = Volume.create("page-information")
    volume.write_file("/file", "12345")
    info = volume.get_info("/file")
    assert (info.name, info.type, info.size) == ("file", VolumeFileType.FILE, 5)
    assert volume.update_metadata("/file", uid=1000, gid=1000, mode=0o600).uid == 1000
    Volume.destroy(volume.volume_id)


@example("Upload and download")
def transfer() -> None:
    volume = Volume.create("page-transfer")
    volume.write_file("/data", b"\x00\x01")
    assert volume.read_file("/data", format="bytes") == b"\x00\x01"
    Volume.destroy(volume.volume_id)


if __name__ == "__main__":
    main()
