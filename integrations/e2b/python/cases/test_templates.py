"""Building templates and using them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2b import BuildException, FileUploadException, TemplateException, wait_for_file, wait_for_port

from support.guest import output, visit
from support.surface import Surface
from support.waiting import eventually

Create = Callable[..., Any]


@pytest.fixture
def built(server: str) -> Iterator[list[str]]:
    """Ids of templates that are deleted at the end of the case."""
    made: list[str] = []
    yield made
    for template in made:
        httpx.delete(f"{server}/templates/{template}", headers={"X-API-Key": os.environ["E2B_API_KEY"]})


@pytest.fixture
def template(api: Surface, tmp_path: Path) -> Any:
    """A builder that begins with `base`, and copies files of the directory of the case."""
    return api.Template(file_context_path=tmp_path).from_template("base")


@pytest.fixture
def build(api: Surface, built: list[str], unique: str) -> Callable[..., Any]:
    def build(builder: Any, name: str = "", **options: Any) -> Any:
        info = api.Template.build(builder, name or unique, **options)
        built.append(info.template_id)
        return info

    return build


def test_a_template_has_what_its_steps_made(template: Any, build: Any, create: Create, unique: str) -> None:
    info = build(template.run_cmd("echo made > /home/user/made").set_envs({"BUILT": "yes"}))
    assert info.name == unique
    assert info.template_id
    assert info.build_id
    sandbox = create(unique)
    assert sandbox.files.read("made") == "made\n"
    assert output(sandbox, "echo $BUILT") == "yes"
    assert sandbox.get_info().template_id == info.template_id


def test_a_template_has_the_user_and_directory_of_its_steps(
    template: Any, build: Any, create: Create, unique: str
) -> None:
    build(template.set_user("root").run_cmd("mkdir -p /srv/app").set_workdir("/srv/app"))
    sandbox = create(unique)
    assert output(sandbox, "whoami; pwd").split() == ["root", "/srv/app"]
    sandbox.files.write("note", "here")
    assert sandbox.files.get_info("/srv/app/note").owner == "root"


def test_files_are_copied_into_a_template(
    template: Any, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    (tmp_path / "app" / "deep").mkdir(parents=True)
    (tmp_path / "app" / "main.py").write_text("print('main')")
    (tmp_path / "app" / "deep" / "data").write_bytes(bytes(range(256)))
    (tmp_path / "script").write_text("#!/bin/sh\necho script\n")
    (tmp_path / "ignored.log").write_text("no")
    builder = template.copy("app", "/srv/app", user="root").copy(
        "script", "/usr/local/bin/script", mode=0o755, user="root"
    )
    build(builder)
    sandbox = create(unique)
    assert output(sandbox, "python3 /srv/app/main.py; script") == "main\nscript"
    assert bytes(sandbox.files.read("/srv/app/deep/data", format="bytes")) == bytes(range(256))
    info = sandbox.files.get_info("/usr/local/bin/script")
    assert (info.mode, info.owner) == (0o755, "root")


def test_patterns_keep_files_out_of_a_template(
    api: Surface, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    (tmp_path / "dir").mkdir()
    for name in ["kept", "left.log", "out.tmp"]:
        (tmp_path / "dir" / name).write_text(name)
    (tmp_path / ".dockerignore").write_text("**/*.tmp\n")
    builder = api.Template(tmp_path, file_ignore_patterns=["**/*.log"]).from_template("base")
    build(builder.copy("dir", "/srv/dir"))
    assert [entry.name for entry in create(unique).files.list("/srv/dir")] == ["kept"]


def test_links_are_copied_or_resolved(template: Any, build: Any, create: Create, tmp_path: Path, unique: str) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "real").write_text("content")
    (tmp_path / "dir" / "link").symlink_to("real")
    build(
        template.copy("dir", "/srv/links", resolve_symlinks=False).copy(
            "dir", "/srv/resolved", resolve_symlinks=True, gzip=False
        )
    )
    sandbox = create(unique)
    assert output(sandbox, "readlink /srv/links/link") == "real"
    assert output(sandbox, "test -L /srv/resolved/link || cat /srv/resolved/link") == "content"


def test_a_step_can_run_as_another_user(template: Any, build: Any, create: Create, unique: str) -> None:
    build(template.run_cmd("whoami > /tmp/plain").run_cmd("whoami > /tmp/chosen", user="root"))
    sandbox = create(unique)
    assert output(sandbox, "cat /tmp/plain /tmp/chosen") == "user\nroot"


def test_helpers_of_the_builder_work(template: Any, build: Any, create: Create, unique: str) -> None:
    builder = (
        template.make_dir("/srv/one", mode=0o750, user="root")
        .make_symlink("/srv/one", "/srv/link", user="root")
        .run_cmd("touch /srv/old /srv/gone", user="root")
        .rename("/srv/old", "/srv/new", user="root")
        .remove("/srv/gone", user="root")
    )
    build(builder)
    sandbox = create(unique)
    names = [entry.name for entry in sandbox.files.list("/srv")]
    assert {"one", "link", "new"} <= set(names)
    assert not {"old", "gone"} & set(names)


def test_a_start_command_is_running_in_every_sandbox(template: Any, build: Any, create: Create, unique: str) -> None:
    start = "python3 -c \"import random; open('/tmp/token', 'w').write(str(random.random()))\"; "
    start += "python3 -m http.server 8000 --directory /tmp"
    build(template.set_start_cmd(start, wait_for_port(8000)))
    first, second = create(unique), create(unique)
    tokens = [visit(sandbox, 8000, "/token").text for sandbox in (first, second)]
    assert tokens[0] == tokens[1], "the program was started once, when the template was built"


def test_a_readiness_command_is_waited_for(template: Any, build: Any, create: Create, unique: str) -> None:
    build(template.set_start_cmd("sleep 2; touch /tmp/ready; sleep infinity", wait_for_file("/tmp/ready")))
    assert create(unique).files.exists("/tmp/ready")


def test_a_readiness_command_alone_is_waited_for(template: Any, build: Any, create: Create, unique: str) -> None:
    build(template.run_cmd("touch /tmp/ready").set_ready_cmd(wait_for_file("/tmp/ready")))
    assert output(create(unique), "echo ready") == "ready"


def test_a_template_has_the_resources_that_are_asked_for(
    template: Any, build: Any, create: Create, unique: str
) -> None:
    build(template.run_cmd("true"), cpu_count=1, memory_mb=512)
    info = create(unique).get_info()
    assert (info.cpu_count, info.memory_mb) == (1, 512)


@pytest.mark.needs("e2b.Template.build(min_free_disk_mb)")
def test_a_template_has_the_free_disk_that_is_asked_for(template: Any, build: Any, create: Create, unique: str) -> None:
    build(template.run_cmd("true"), min_free_disk_mb=1024)
    free = int(output(create(unique), "df --output=avail -m / | tail -1"))
    assert free >= 1000


@pytest.mark.parametrize("options", [{"cpu_count": 0}, {"cpu_count": 10**6}, {"memory_mb": -1}, {"memory_mb": 10**9}])
def test_resources_that_make_no_sense_are_refused(template: Any, build: Any, options: dict[str, int]) -> None:
    with pytest.raises(BuildException, match="400"):
        build(template.run_cmd("true"), **options)


def test_the_log_of_a_build_arrives_in_order(template: Any, build: Any) -> None:
    entries: list[Any] = []
    build(template.run_cmd("echo from the step; echo and more"), on_build_logs=entries.append)
    text = "\n".join(entry.message for entry in entries)
    assert text.index("from the step") < text.index("and more")
    assert {entry.level for entry in entries} <= {"debug", "info", "warn", "error"}


def test_a_failing_step_is_named(template: Any, build: Any) -> None:
    entries: list[Any] = []
    with pytest.raises(BuildException) as failed:
        build(template.run_cmd("true").run_cmd("echo the reason >&2; exit 3"), on_build_logs=entries.append)
    assert "exit 3" in str(failed.value) or "3" in str(failed.value)
    assert any("the reason" in entry.message for entry in entries)


def test_a_build_that_failed_is_no_template(api: Surface, template: Any, build: Any, unique: str) -> None:
    with pytest.raises(BuildException):
        build(template.run_cmd("exit 1"))
    with pytest.raises(Exception, match="40[0-9]"):
        api.Sandbox.create(unique)


def test_a_readiness_command_that_never_succeeds_can_be_stopped_by_the_start(template: Any, build: Any) -> None:
    with pytest.raises(BuildException):
        build(template.set_start_cmd("echo broken; exit 1", "false"))


def test_a_build_can_continue_in_the_background(
    api: Surface, template: Any, built: list[str], create: Create, unique: str
) -> None:
    entries: list[Any] = []
    info = api.Template.build_in_background(
        template.run_cmd("echo in the background").set_envs({"A": "b"}),
        unique,
        tags=["one"],
        cpu_count=1,
        memory_mb=512,
        skip_cache=True,
        on_build_logs=entries.append,
        request_timeout=60,
    )
    built.append(info.template_id)
    status = eventually(lambda: finished(api.Template.get_build_status(info, logs_offset=0)))
    assert status.status.value == "ready"
    assert (status.build_id, status.template_id, status.reason) == (info.build_id, info.template_id, None)
    assert any("in the background" in entry.message for entry in status.log_entries)
    count = len(status.log_entries)
    assert api.Template.get_build_status(info, logs_offset=count).log_entries == []
    assert output(create(f"{unique}:one"), "echo $A") == "b"


@pytest.mark.needs("e2b.Template.build_in_background(min_free_disk_mb)")
def test_a_build_in_the_background_can_ask_for_free_disk(
    api: Surface, template: Any, built: list[str], unique: str
) -> None:
    info = api.Template.build_in_background(template.run_cmd("true"), unique, min_free_disk_mb=512)
    built.append(info.template_id)
    assert eventually(lambda: finished(api.Template.get_build_status(info))).status.value == "ready"


def finished(status: Any) -> Any:
    return status if status.status.value in ("ready", "error") else None


def test_the_status_of_a_build_that_failed_has_the_reason(
    api: Surface, template: Any, built: list[str], unique: str
) -> None:
    info = api.Template.build_in_background(template.run_cmd("true").run_cmd("exit 9"), unique)
    built.append(info.template_id)
    status = eventually(lambda: finished(api.Template.get_build_status(info)))
    assert status.status.value == "error"
    assert "9" in status.reason.message
    assert status.reason.step == "2"


def test_the_status_of_an_unknown_build_is_refused(api: Surface, template: Any, build: Any) -> None:
    info = build(template.run_cmd("true"))
    info.build_id = "00000000-0000-4000-8000-000000000000"
    with pytest.raises(BuildException, match="404"):
        api.Template.get_build_status(info)


def test_a_step_that_was_built_before_is_taken_from_the_cache(
    template: Any, build: Any, create: Create, api: Surface, tmp_path: Path, unique: str
) -> None:
    command = f"echo {unique} > /dev/null; od -An -N16 -tx8 /dev/urandom > /tmp/random"

    def token(**options: Any) -> str:
        build(api.Template(tmp_path).from_template("base").run_cmd(command), **options)
        return str(create(unique).files.read("/tmp/random"))

    first = token()
    assert token() == first
    assert token(skip_cache=True) != first


def test_a_cache_is_left_out_from_a_step_on(
    api: Surface, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    def tokens() -> list[str]:
        random = "od -An -N8 -tx8 /dev/urandom >"
        builder = api.Template(tmp_path).from_template("base").run_cmd(f"echo {unique}; {random} /tmp/1")
        build(builder.skip_cache().run_cmd(f"{random} /tmp/2"))
        return output(create(unique), "cat /tmp/1 /tmp/2").split()

    first, second = tokens(), tokens()
    assert first[0] == second[0]
    assert first[1] != second[1]


def test_changed_files_are_copied_again(api: Surface, build: Any, create: Create, tmp_path: Path, unique: str) -> None:
    for text in ["first", "second"]:
        (tmp_path / "file").write_text(text)
        build(api.Template(tmp_path).from_template("base").copy("file", "/srv/file"))
        assert create(unique).files.read("/srv/file") == text


def test_files_can_be_uploaded_again_by_force(
    api: Surface, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    (tmp_path / "file").write_text("text")
    for _ in range(2):
        entries: list[Any] = []
        builder = api.Template(tmp_path).from_template("base").copy("file", "/srv/file", force_upload=True)
        build(builder, on_build_logs=entries.append)
    assert create(unique).files.read("/srv/file") == "text"


def test_a_file_that_does_not_exist_is_named(template: Any, build: Any) -> None:
    with pytest.raises((FileUploadException, ValueError, Exception), match="no-such-file"):
        build(template.copy("no-such-file", "/srv/"))


def test_a_template_exists_after_its_build(api: Surface, template: Any, build: Any, unique: str) -> None:
    assert api.Template.exists(unique) is False
    build(template.run_cmd("true"))
    assert api.Template.exists(unique) is True
    assert api.Template.alias_exists(unique) is True
    assert api.Template.exists("base") is True


def test_a_former_name_for_the_name_is_accepted(
    api: Surface, template: Any, built: list[str], create: Create, unique: str
) -> None:
    info = api.Template.build(template.run_cmd("true"), alias=unique)
    built.append(info.template_id)
    assert info.alias == unique
    assert output(create(unique), "echo ready") == "ready"
    again = api.Template.build_in_background(template, alias=unique)
    assert again.template_id == info.template_id


def test_tags_name_builds(api: Surface, build: Any, create: Create, tmp_path: Path, unique: str) -> None:
    for version in ["v1", "v2"]:
        builder = api.Template(tmp_path).from_template("base").set_envs({"VERSION": version})
        assert version in build(builder, tags=[version]).tags
    assert output(create(f"{unique}:v1"), "echo $VERSION") == "v1"
    assert output(create(f"{unique}:v2"), "echo $VERSION") == "v2"


def test_a_tag_can_be_part_of_the_name(template: Any, build: Any, create: Create, unique: str) -> None:
    build(template.set_envs({"TAGGED": "yes"}), name=f"{unique}:stable")
    assert output(create(f"{unique}:stable"), "echo $TAGGED") == "yes"


def test_tags_are_assigned_listed_and_removed(
    api: Surface, template: Any, build: Any, create: Create, unique: str
) -> None:
    info = build(template.set_envs({"TAGGED": "yes"}), tags=["first"])
    assigned = api.Template.assign_tags(f"{unique}:first", ["second", "third"])
    assert set(assigned.tags) >= {"second", "third"}
    assert assigned.build_id == info.build_id
    assert api.Template.assign_tags(f"{unique}:first", "fourth").build_id == info.build_id
    tags = {tag.tag: tag for tag in api.Template.get_tags(unique)}
    assert {"first", "second", "third", "fourth"} <= set(tags)
    assert tags["second"].build_id == info.build_id
    assert tags["second"].created_at.year >= 2024
    assert {tag.tag for tag in api.Template.get_tags(info.template_id)} == set(tags)
    assert output(create(f"{unique}:third"), "echo $TAGGED") == "yes"
    api.Template.remove_tags(unique, ["second", "third"])
    api.Template.remove_tags(unique, "fourth")
    assert {"first"} <= {tag.tag for tag in api.Template.get_tags(unique)}
    assert not {"second", "third", "fourth"} & {tag.tag for tag in api.Template.get_tags(unique)}


def test_tags_of_what_does_not_exist_are_refused(api: Surface, unique: str) -> None:
    with pytest.raises(TemplateException, match="404"):
        api.Template.get_tags(unique)
    with pytest.raises(TemplateException, match="404"):
        api.Template.assign_tags(f"{unique}:none", "tag")
    with pytest.raises(TemplateException, match="404"):
        api.Template.remove_tags(unique, "tag")


@pytest.mark.parametrize("name", ["with space", "a/b/c", "ü", ":tag"])
def test_a_name_that_no_template_can_have_is_refused(template: Any, build: Any, name: str) -> None:
    with pytest.raises(BuildException, match="400"):
        build(template.run_cmd("true"), name=name)


def test_a_template_of_an_unknown_template_is_refused(api: Surface, build: Any, tmp_path: Path, unique: str) -> None:
    with pytest.raises(BuildException, match="nothing-of-the-kind"):
        build(api.Template(tmp_path).from_template("nothing-of-the-kind").run_cmd("true"))


def test_a_template_can_begin_with_an_image_of_the_server(
    api: Surface, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    build(api.Template(tmp_path).from_image("base").run_cmd("echo made > /tmp/made"))
    assert create(unique).files.read("/tmp/made") == "made\n"


def test_the_base_image_is_that_of_the_server(
    api: Surface, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    build(api.Template(tmp_path).from_base_image().run_cmd("echo made > /tmp/made"))
    sandbox = create(unique)
    assert sandbox.files.read("/tmp/made") == "made\n"
    assert output(sandbox, "whoami") == "user"


def test_a_dockerfile_becomes_a_template(api: Surface, build: Any, create: Create, tmp_path: Path, unique: str) -> None:
    (tmp_path / "app.py").write_text("print('app')")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        "FROM base\nENV WHERE=docker\nWORKDIR /srv/app\nCOPY app.py .\nRUN echo run > made && chown -R user .\n"
    )
    build(api.Template(tmp_path).from_dockerfile(str(dockerfile)))
    sandbox = create(unique)
    assert output(sandbox, "pwd; cat made; python3 app.py; echo $WHERE") == "/srv/app\nrun\napp\ndocker"


def test_a_template_builds_upon_another(
    api: Surface, template: Any, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    build(template.set_envs({"LOWER": "yes"}).run_cmd("echo lower > /tmp/lower"), name=f"{unique}-lower")
    build(api.Template(tmp_path).from_template(f"{unique}-lower").run_cmd("cat /tmp/lower > /tmp/upper"))
    sandbox = create(unique)
    assert sandbox.files.read("/tmp/upper") == "lower\n"
    assert output(sandbox, "echo $LOWER") == "yes"


def test_a_sandbox_outlives_a_newer_build_of_its_template(
    api: Surface, build: Any, create: Create, tmp_path: Path, unique: str
) -> None:
    build(api.Template(tmp_path).from_template("base").set_envs({"N": "1"}))
    sandbox = create(unique)
    build(api.Template(tmp_path).from_template("base").set_envs({"N": "2"}))
    sandbox.pause()
    sandbox.connect()
    assert output(sandbox, "echo $N") == "1"
    assert output(create(unique), "echo $N") == "2"
