"""Volumes, secrets, keys, webhooks, projects, pools, images, builds and the daemon, with both clients."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest
from conftest import Connect, eventually

from dormouse import Client, Sandbox
from dormouse.errors import ApiError, ConflictError, ForbiddenError, NotFoundError, UnauthorizedError
from dormouse.types import (
    AttachVolume,
    BuildStepRequest,
    ImageConfig,
    ImportProgress,
    ProjectBudgets,
    ResourcesRequest,
    Volume,
)


@pytest.fixture
def volume(client: Client, unique: str) -> Iterator[Volume]:
    volume = client.volumes.create(unique, size_limit="64M", writers="many")
    yield volume
    client.volumes.delete(volume.id)


def test_a_volume_is_made_listed_and_deleted(client: Client, volume: Volume) -> None:
    assert (volume.size_bytes, volume.writers) == (64 << 20, "many")
    assert client.volumes.get(volume.name).id == volume.id
    assert volume.id in [other.id for other in client.volumes.list(limit=1)]
    with pytest.raises(ConflictError):
        client.volumes.create(volume.name)


def test_files_of_a_volume_are_written_without_a_sandbox(client: Client, volume: Volume) -> None:
    client.volumes.write(volume.name, "dir/a", b"\x00\xff" * 1000)
    assert client.volumes.read(volume.name, "dir/a") == b"\x00\xff" * 1000
    assert [(file.name, file.kind) for file in client.volumes.files(volume.name, "dir")] == [("a", "file")]
    with pytest.raises(NotFoundError):
        client.volumes.read(volume.name, "none")


def test_a_volume_is_attached_at_the_start_and_later(client: Client, volume: Volume) -> None:
    attached = [AttachVolume(volume=volume.name, path="/data")]
    with client.sandboxes.create("base", volumes=attached) as one, client.sandboxes.create("base") as two:
        one.files.write("/data/a", "shared")
        assert two.attach_volume(volume.name, "/mnt/data", read_only=True).volumes[0].read_only
        assert two.files.read_text("/mnt/data/a") == "shared"
        with pytest.raises(ConflictError):
            client.volumes.delete(volume.name)
        assert two.detach_volume("/mnt/data").volumes == []


def test_a_secret_is_set_and_never_shown(client: Client, unique: str) -> None:
    client.secrets.set(unique, "hidden value")
    changed = client.secrets.set(unique, "other value")
    assert changed.changed_at >= changed.created_at
    assert client.secrets.get(unique).used_by == 0
    assert unique in [secret.name for secret in client.secrets.list()]
    client.secrets.delete(unique)
    client.secrets.delete(unique)
    with pytest.raises(NotFoundError):
        client.secrets.get(unique)


def test_a_key_permits_what_its_scope_says(client: Client, connect: Connect, unique: str) -> None:
    key = client.keys.create(unique, scope="read_only", lifetime=timedelta(hours=1))
    assert key.expires_at is not None
    reader = connect(api_key=key.key)
    assert reader.info().project == "local"
    with pytest.raises(ForbiddenError):
        reader.sandboxes.create("base")
    assert key.id in [other.id for other in client.keys.list()]
    client.keys.delete(key.id)
    with pytest.raises(UnauthorizedError):
        reader.info()


def test_a_key_of_a_sandbox_reaches_that_alone(
    client: Client, connect: Connect, sandbox: Sandbox, named: Sandbox
) -> None:
    key = client.keys.create(scope="sandbox", sandbox=sandbox.id)
    own = connect(api_key=key.key)
    assert own.sandboxes.connect(sandbox.id).exec("echo mine").stdout == "mine\n"
    with pytest.raises((ForbiddenError, NotFoundError)):
        own.sandboxes.connect(named.id)
    client.keys.delete(key.id)


@pytest.mark.parametrize("api_key", ["wrong", "ä"], ids=["wrong", "not-ascii"])
def test_a_wrong_key_is_refused(connect: Connect, daemon: str, api_key: str) -> None:
    with pytest.raises((UnauthorizedError, UnicodeEncodeError)):
        connect(api_key=api_key).info()


def test_a_webhook_is_made_and_replayed(client: Client, unique: str) -> None:
    webhook = client.webhooks.create(f"http://{unique}.example.com/", kinds=["created"], after=0)
    assert webhook.secret is not None
    assert webhook.secret not in repr(webhook)
    assert {(w.id, w.secret) for w in client.webhooks.list() if w.id == webhook.id} == {(webhook.id, None)}
    assert client.webhooks.replay(webhook.id, 0).delivered == 0
    client.webhooks.delete(webhook.id)


def test_a_project_separates_its_users(client: Client, connect: Connect, named: Sandbox, unique: str) -> None:
    project = client.projects.create(unique, budgets=ProjectBudgets(sandboxes=1))
    assert project.budgets.sandboxes == 1
    other = connect(project=unique)
    assert other.info().project == unique
    assert list(other.sandboxes.list()) == []
    with pytest.raises(NotFoundError):
        other.sandboxes.connect(named.id)
    with other.sandboxes.create("base"), pytest.raises(ApiError):
        other.sandboxes.create("base")
    changed = client.projects.set_budgets(unique, running=5, memory="4G")
    assert (changed.budgets.sandboxes, changed.budgets.memory_bytes) == (None, 4 << 30)
    assert client.projects.get(unique).used.sandboxes == 0
    assert unique in [each.name for each in client.projects.list()]
    client.projects.delete(unique)


def test_a_pool_has_sandboxes_ready(client: Client, unique: str) -> None:
    pool = client.pools.create(
        unique,
        image="base",
        ready=1,
        most=2,
        labels={"pool": "yes"},
        resources=ResourcesRequest(cpu_millis=500),
    )
    assert (pool.name, pool.ready) == (unique, 1)
    with client.pools.claim(unique, name=unique, env={"A": "1"}, max_wait=60) as sandbox:
        assert (sandbox.name, sandbox.state, sandbox.info.labels) == (unique, "running", {"pool": "yes"})
        assert sandbox.exec("echo $A").stdout == "1\n"
        assert eventually(lambda: client.pools.get(unique).claimed == 1)
    assert sandbox.state == "terminated"
    # Until its successor waits, it may be claimed in spite of the new size.
    assert eventually(lambda: client.pools.get(unique).waiting == 1)
    assert client.pools.resize(unique, 0).most is None
    assert unique in [each.name for each in client.pools.list()]
    assert eventually(lambda: client.pools.get(unique).waiting == 0)
    with pytest.raises(ApiError):
        client.pools.claim(unique)
    client.pools.delete(unique)


def test_a_template_stands_for_an_image_with_settings(client: Client, unique: str) -> None:
    client.templates.create(unique, image="base", env={"FROM": "template"}, tags=["v1", "latest"])
    assert set(client.templates.tag(unique, ["stable"], source="v1").tags) == {"v1", "latest", "stable"}
    with client.sandboxes.create(template=f"{unique}:stable") as sandbox:
        assert sandbox.exec("echo $FROM").stdout == "template\n"
    client.templates.delete(unique, tag="v1")
    assert set(client.templates.get(unique).tags) == {"latest", "stable"}
    assert unique in [each.name for each in client.templates.list()]
    client.templates.delete(unique)
    with pytest.raises(NotFoundError):
        client.templates.get(unique)


def test_operations_are_listed_and_found(client: Client, named: Sandbox) -> None:
    named.suspend()
    operations = list(client.operations.list(sandbox=named.id))
    assert [operation.kind for operation in operations][:1] == ["suspend"]
    assert client.operations.get(operations[0].id, wait=timedelta(seconds=1)) == operations[0]
    with pytest.raises(NotFoundError):
        client.operations.get("aaaaaaaaaaaaaaaaaaaa")


def small_image() -> bytes:
    """Return the archive of a root file system with one program that is not one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("etc/hello")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))
    return buffer.getvalue()


@contextmanager
def image_tagged(client: Client, tag: str) -> Iterator[str]:
    try:
        yield tag
    finally:
        client.images.delete(tag)


def test_images_are_listed_and_found(client: Client) -> None:
    base = client.images.get("base")
    assert "base" in base.tags
    assert base.digest in [image.digest for image in client.images.list(limit=1)]
    with pytest.raises(NotFoundError):
        client.images.get("no-such-image")


def test_an_image_is_uploaded_downloaded_and_deleted(client: Client, unique: str) -> None:
    image = client.images.upload(small_image(), tag=unique)
    with image_tagged(client, unique):
        assert (image.tags, image.files) == ([unique], image.files)
        with client.images.download(unique) as pieces:
            archive = b"".join(pieces)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            assert "oci-layout" in tar.getnames()
    with pytest.raises(NotFoundError):
        client.images.get(unique)


def test_a_broken_image_is_an_error(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.images.upload(b"this is no archive")
    assert caught.value.message


def test_an_image_is_composed_from_a_snapshot(client: Client, named: Sandbox, unique: str) -> None:
    named.files.write("/root/composed", "yes")
    snapshot = named.checkpoint()
    named.terminate()
    steps: list[ImportProgress] = []
    config = ImageConfig(env=["A=1"], directory="/root")
    image = client.images.compose(snapshot=snapshot.id, config=config, tag=unique, on_progress=steps.append)
    with ExitStack() as stack:
        stack.enter_context(image_tagged(client, unique))
        assert image.config is not None
        assert image.config.env == ["A=1"]
        with client.sandboxes.create(unique) as sandbox:
            assert sandbox.exec("echo $A; cat composed").stdout == "1\nyes"
    client.snapshots.delete(snapshot.id)
    assert {step.stage for step in steps} <= {
        "waiting", "fetching", "unpacking", "hashing", "syncing", "trying"
    }  # fmt: skip


def test_paths_of_the_host_are_for_the_socket_alone(client: Client) -> None:
    with pytest.raises(ForbiddenError):
        client.images.import_path("/etc")
    with pytest.raises(ForbiddenError):
        client.images.export_path("base", "/tmp/base.tar")


def test_a_registry_that_cannot_be_reached_is_an_error(client: Client) -> None:
    with pytest.raises(ApiError):
        client.images.pull("127.0.0.1:1/none:latest", insecure=True)
    with pytest.raises(ApiError):
        client.snapshots.pull("not a reference", labels={"a": "1"}, expires=60)


def test_a_snapshot_is_exported_and_imported(client: Client, named: Sandbox) -> None:
    named.files.write("/root/moved", "yes")
    snapshot = named.checkpoint(labels={"a": "1"})
    named.terminate()
    with client.snapshots.export(snapshot.id) as pieces:
        archive = b"".join(pieces)
    imported = client.snapshots.import_archive(archive, labels={"b": "2"}, expires=3600)
    assert (imported.made_by, imported.labels) == ("import", {"a": "1", "b": "2"})
    with client.sandboxes.create(snapshot=imported.id) as sandbox:
        assert sandbox.files.read_text("/root/moved") == "yes"
    for each in (imported, snapshot):
        client.snapshots.delete(each.id)


def test_a_snapshot_cannot_be_pushed_to_something_else_than_a_registry(
    client: Client, named: Sandbox
) -> None:
    snapshot = named.checkpoint()
    with pytest.raises(ApiError):
        client.snapshots.push(snapshot.id, "not a reference", insecure=True)
    named.terminate()
    client.snapshots.delete(snapshot.id)


def test_an_image_is_built_from_steps(client: Client, unique: str) -> None:
    steps = [BuildStepRequest(env={"A": "1"}), BuildStepRequest(run=f"echo {unique} $A > /built; cat /built")]
    build = client.builds.create(
        base="base", steps=steps, tag=unique, step_timeout=120, idempotency_key=unique
    )
    assert (
        client.builds.create(
            base="base", steps=steps, tag=unique, step_timeout=120, idempotency_key=unique
        ).id
        == build.id
    )
    lines = [line.text for line in client.builds.follow(build.id)]
    assert f"{unique} 1" in lines
    build = client.builds.get(build.id, wait=60)
    assert (build.state, build.tag) == ("succeeded", unique)
    log = client.builds.log(build.id, lines=1)
    assert (len(log.lines), log.next_offset) == (1, 1)
    assert build.id in [each.id for each in client.builds.list()]
    assert client.builds.cancel(build.id).state == "succeeded"
    with image_tagged(client, unique), client.sandboxes.create(unique) as sandbox:
        assert sandbox.files.read_text("/built") == f"{unique} 1\n"
    for step in build.steps:
        if step.snapshot is not None:
            client.snapshots.delete(step.snapshot, when_free=True)


def test_a_build_that_fails_says_where(client: Client) -> None:
    build = client.builds.create(dockerfile="FROM base\nRUN exit 3\n")
    build = client.builds.get(build.id, wait=60)
    assert build.state == "failed"
    assert build.failure is not None
    assert build.failure.exit_code == 3


def test_a_context_is_uploaded_once(client: Client, unique: str) -> None:
    hash = hashlib.sha256(unique.encode()).hexdigest()
    with pytest.raises(NotFoundError):
        client.builds.context(hash)
    uploaded = client.builds.upload_context(hash, small_image())
    assert (uploaded.hash, client.builds.context(hash)) == (hash, uploaded)


def test_the_daemon_describes_itself(client: Client) -> None:
    assert client.health().status == "ok"
    assert client.info().engine.name == "gvisor"
    assert "# TYPE dorm_operations_total counter" in client.daemon.metrics()
    assert client.daemon.authority().certificate.startswith("-----BEGIN CERTIFICATE-----")
    assert client.daemon.openapi()["info"]["title"] == "Dormouse"
    assert client.daemon.quarantine().records == []


def test_what_is_on_disk_is_listed_and_verified(client: Client) -> None:
    assert any(item.verdict for item in client.daemon.garbage())
    image = next(stored for stored in client.daemon.stored() if stored.kind == "image")
    assert client.daemon.verify(image).files == []
    assert client.daemon.collect_garbage() is not None
