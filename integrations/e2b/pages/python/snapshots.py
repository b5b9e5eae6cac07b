"""Sandbox: snapshots, filesystem-only snapshots, and forks."""

from e2b import Sandbox

from pages import example, main, until

BOOT_ID = "/proc/sys/kernel/random/boot_id"


@example("Create a snapshot and start from it")
def create() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("/app/state.json", '{"step": 1}', user="root")
    snapshot = sandbox.create_snapshot()
    copies = [Sandbox.create(snapshot.snapshot_id) for _ in range(2)]
    for copy in copies:
        assert copy.files.read("/app/state.json") == '{"step": 1}'
        copy.kill()
    assert sandbox.is_running()
    sandbox.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id)


@example("Create a snapshot by the id of a sandbox")
def by_id() -> None:
    sandbox = Sandbox.create()
    snapshot = Sandbox.create_snapshot(sandbox.sandbox_id)
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)
    sandbox.kill()


@example("List snapshots")
def list_snapshots() -> None:
    sandbox = Sandbox.create()
    snapshot = sandbox.create_snapshot()
    for paginator in (Sandbox.list_snapshots(), Sandbox.list_snapshots(sandbox_id=sandbox.sandbox_id)):
        found = []
        while paginator.has_next:
            found += [item.snapshot_id for item in paginator.next_items()]
        assert snapshot.snapshot_id in found
    Sandbox.delete_snapshot(snapshot.snapshot_id)
    sandbox.kill()


@example("Delete a snapshot")
def delete() -> None:
    sandbox = Sandbox.create()
    snapshot = sandbox.create_snapshot()
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is True
    assert Sandbox.delete_snapshot(snapshot.snapshot_id) is False
    sandbox.kill()


@example("A checkpoint before a risky change")
def checkpoint() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("work", "good")
    snapshot = sandbox.create_snapshot()
    sandbox.commands.run("rm work")
    restored = Sandbox.create(snapshot.snapshot_id)
    assert restored.files.read("work") == "good"
    restored.kill()
    sandbox.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id)


@example("Pause only the filesystem")
def filesystem_only() -> None:
    sandbox = Sandbox.create()
    boot = sandbox.files.read(BOOT_ID)
    sandbox.files.write("kept", "text")
    sandbox.pause(mode="filesystem")
    sandbox.connect()
    assert sandbox.files.read("kept") == "text"
    assert sandbox.files.read(BOOT_ID) != boot
    sandbox.kill()


@example("Pause only the filesystem on timeout")
def filesystem_only_on_timeout() -> None:
    lifecycle = {"on_timeout": {"action": "pause", "mode": "filesystem"}}
    sandbox = Sandbox.create(timeout=2, lifecycle=lifecycle)
    sandbox.files.write("kept", "text")
    until(lambda: sandbox.get_info().state.value == "paused")
    sandbox.connect()
    assert sandbox.files.read("kept") == "text"
    sandbox.kill()


@example("A snapshot of the filesystem alone")
def snapshot_of_files() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("kept", "text")
    snapshot = sandbox.create_snapshot(mode="filesystem")
    copy = Sandbox.create(snapshot.snapshot_id)
    assert copy.files.read("kept") == "text"
    copy.kill()
    sandbox.kill()
    Sandbox.delete_snapshot(snapshot.snapshot_id)


@example("Reboot instead of restoring")
def reboot() -> None:
    sandbox = Sandbox.create()
    boot = sandbox.files.read(BOOT_ID)
    sandbox.pause()
    sandbox.connect(on_resume="reboot")
    assert sandbox.files.read(BOOT_ID) != boot
    sandbox.kill()


@example("Fork")
def fork() -> None:
    sandbox = Sandbox.create()
    sandbox.files.write("branch", "main")
    forks = sandbox.fork(count=2, timeout=60)
    for number, copy in enumerate(forks):
        assert copy.files.read("branch") == "main"
        copy.files.write("branch", str(number))
    assert [copy.files.read("branch") for copy in forks] == ["0", "1"]
    assert sandbox.files.read("branch") == "main"
    for copy in [*forks, sandbox]:
        copy.kill()


if __name__ == "__main__":
    main()
