"""The builder of templates, as far as it goes without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from e2b import (
    BuildException,
    InvalidArgumentException,
    default_build_logger,
    wait_for_file,
    wait_for_port,
    wait_for_process,
    wait_for_timeout,
    wait_for_url,
)

from support.surface import Surface


def steps(api: Surface, builder: Any) -> list[tuple[str, list[str]]]:
    return [(step["type"], step["args"]) for step in described(api, builder)["steps"]]


def described(api: Surface, builder: Any) -> Any:
    return json.loads(api.Template.to_json(builder))


@pytest.fixture
def template(api: Surface, tmp_path: Path) -> Any:
    return api.Template(file_context_path=tmp_path)


IMAGES = {
    "from_debian_image": "debian:stable",
    "from_ubuntu_image": "ubuntu:latest",
    "from_arch_image": "archlinux:latest",
    "from_python_image": "python:3",
    "from_node_image": "node:lts",
    "from_bun_image": "oven/bun:latest",
    "from_base_image": "e2bdev/base",
}


@pytest.mark.parametrize("method", IMAGES)
def test_a_template_begins_with_an_image(api: Surface, template: Any, method: str) -> None:
    assert described(api, getattr(template, method)())["fromImage"] == IMAGES[method]


@pytest.mark.parametrize(
    ("method", "option", "image"),
    [
        ("from_debian_image", "variant", "debian:bookworm"),
        ("from_ubuntu_image", "variant", "ubuntu:24.04"),
        ("from_fedora_image", "variant", "fedora:40"),
        ("from_alpine_image", "variant", "alpine:3.20"),
        ("from_arch_image", "variant", "archlinux:base"),
        ("from_python_image", "version", "python:3.12"),
        ("from_node_image", "variant", "node:22"),
        ("from_bun_image", "variant", "oven/bun:1"),
    ],
)
def test_a_variant_of_an_image_can_be_chosen(api: Surface, template: Any, method: str, option: str, image: str) -> None:
    variant = image.split(":")[1]
    assert described(api, getattr(template, method)(**{option: variant}))["fromImage"] == image


def test_credentials_of_a_registry_are_sent(api: Surface, template: Any) -> None:
    sent = described(api, template.from_image("registry.example.com/app", username="ann", password="secret"))
    assert sent["fromImageRegistry"] == {"type": "registry", "username": "ann", "password": "secret"}


def test_half_of_the_credentials_is_refused(template: Any) -> None:
    with pytest.raises(InvalidArgumentException):
        template.from_image("registry.example.com/app", username="ann")


def test_credentials_of_clouds_are_sent(api: Surface, tmp_path: Path) -> None:
    aws = api.Template(file_context_path=tmp_path).from_aws_registry(
        "x.dkr.ecr.eu-west-1.amazonaws.com/app", "id", "secret", "eu-west-1"
    )
    assert described(api, aws)["fromImageRegistry"]["type"] == "aws"
    gcp = api.Template(file_context_path=tmp_path).from_gcp_registry("gcr.io/app", {"project": "p"})
    assert described(api, gcp)["fromImageRegistry"]["type"] == "gcp"


def test_a_template_can_begin_with_another(api: Surface, template: Any) -> None:
    assert described(api, template.from_template("base"))["fromTemplate"] == "base"


def test_steps_are_sent_in_their_order(api: Surface, template: Any) -> None:
    builder = template.from_template("base").run_cmd("one").set_envs({"A": "b"}).set_workdir("/srv").set_user("root")
    assert steps(api, builder) == [
        ("RUN", ["one"]),
        ("ENV", ["A", "b"]),
        ("WORKDIR", ["/srv"]),
        ("USER", ["root"]),
    ]


def test_several_commands_are_one_step(api: Surface, template: Any) -> None:
    assert steps(api, template.from_template("base").run_cmd(["one", "two"], user="root")) == [
        ("RUN", ["one && two", "root"])
    ]


def test_helpers_are_commands(api: Surface, template: Any) -> None:
    builder = (
        template.from_template("base")
        .make_dir(["/a", "/b"], mode=0o750, user="root")
        .make_symlink("/a", "/c", user="root", force=True)
        .rename("/b", "/d", force=True, user="root")
        .remove(["/c", "/d"], force=True, recursive=True, user="root")
    )
    assert [args for _, args in steps(api, builder)] == [
        ["mkdir -p -m 0750 /a /b", "root"],
        ["ln -s -f /a /c", "root"],
        ["mv /b /d -f", "root"],
        ["rm -r -f /c /d", "root"],
    ]


def test_installers_are_commands(api: Surface, template: Any) -> None:
    builder = (
        template.from_template("base")
        .pip_install(["a", "b"], g=False)
        .pip_install("c")
        .npm_install("d", g=True, dev=False)
        .npm_install(["e"], dev=True)
        .bun_install("f", g=True)
        .bun_install(["g"], dev=True)
        .apt_install(["h"], no_install_recommends=True, fix_missing=True)
    )
    commands = [args[0] for _, args in steps(api, builder)]
    assert commands[:6] == [
        "pip install --user a b",
        "pip install c",
        "npm install -g d",
        "npm install --save-dev e",
        "bun install -g f",
        "bun install --dev g",
    ]
    assert "apt-get install -y --no-install-recommends --fix-missing h" in commands[6]


def test_a_repository_is_cloned_by_a_command(api: Surface, template: Any) -> None:
    builder = template.from_template("base").git_clone(
        "https://example.com/x.git", "/srv/x", branch="main", depth=1, user="root"
    )
    assert steps(api, builder) == [
        (
            "RUN",
            ["git clone https://example.com/x.git --branch main --single-branch --depth 1 /srv/x", "root"],
        )
    ]


def test_files_are_copied_by_their_hash(api: Surface, template: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    builder = template.from_template("base").copy(
        "file", "/srv/", force_upload=True, user="root", mode=0o600, resolve_symlinks=True, gzip=False
    )
    (step,) = described(api, builder)["steps"]
    assert step["args"] == ["file", "/srv/", "root", "0600"]
    assert len(step["filesHash"]) == 64
    assert step["forceUpload"] is True


def test_several_files_are_copied(api: Surface, template: Any, tmp_path: Path) -> None:
    for name in ["one", "two"]:
        (tmp_path / name).write_text(name)
    items = [
        {"src": "one", "dest": "/1", "user": "root", "mode": 0o644, "forceUpload": True},
        {"src": ["two"], "dest": "/2", "resolveSymlinks": False, "gzip": True},
    ]
    assert len(steps(api, template.from_template("base").copy_items(items))) == 2


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside"])
def test_files_outside_the_context_are_refused(template: Any, path: str) -> None:
    with pytest.raises(Exception, match=r"(?i)path|absolute|outside"):
        template.from_template("base").copy(path, "/srv/")


def test_a_cache_can_be_left_out_from_a_step_on(api: Surface, tmp_path: Path) -> None:
    builder = api.Template(tmp_path).from_template("base").run_cmd("one").skip_cache().run_cmd("two")
    assert [step["force"] for step in described(api, builder)["steps"]] == [False, True]
    assert described(api, api.Template(tmp_path).skip_cache().from_template("base"))["force"] is True


def test_commands_of_start_and_readiness_are_sent(api: Surface, tmp_path: Path) -> None:
    started = api.Template(tmp_path).from_template("base").set_start_cmd("run", wait_for_port(80))
    assert described(api, started)["startCmd"] == "run"
    assert "80" in described(api, started)["readyCmd"]
    ready = api.Template(tmp_path).from_template("base").set_ready_cmd("true")
    assert described(api, ready)["readyCmd"] == "true"


def test_conditions_of_readiness_are_commands() -> None:
    assert "8000" in wait_for_port(8000).get_cmd()
    assert "204" in wait_for_url("http://localhost", 204).get_cmd()
    assert "200" in wait_for_url("http://localhost").get_cmd()
    assert wait_for_process("nginx").get_cmd() == "pgrep nginx > /dev/null"
    assert wait_for_file("/ready").get_cmd() == "[ -f /ready ]"
    assert wait_for_timeout(3000).get_cmd() == "sleep 3"


def test_a_template_is_shown_as_a_dockerfile(api: Surface, template: Any) -> None:
    builder = template.from_image("debian:12").run_cmd("true").set_envs({"A": "b"}).set_workdir("/srv")
    assert api.Template.to_dockerfile(builder) == "FROM debian:12\nRUN true\nENV A=b\nWORKDIR /srv\n"


def test_a_template_of_a_template_has_no_dockerfile(api: Surface, template: Any) -> None:
    with pytest.raises(ValueError, match="another template"):
        api.Template.to_dockerfile(template.from_template("base"))


def test_a_dockerfile_becomes_steps(api: Surface, template: Any, tmp_path: Path) -> None:
    (tmp_path / "app").write_text("app")
    source = 'FROM debian:12\nENV A=b\nWORKDIR /srv\nCOPY app .\nRUN true\nUSER nobody\nCMD ["run"]\n'
    builder = template.from_dockerfile(source)
    sent = described(api, builder)
    assert sent["fromImage"] == "debian:12"
    assert [step["type"] for step in sent["steps"]][-5:] == ["ENV", "WORKDIR", "COPY", "RUN", "USER"]
    assert sent["startCmd"] == "run"


def test_servers_for_mcp_need_their_template(template: Any, api: Surface, tmp_path: Path) -> None:
    with pytest.raises(BuildException, match="mcp-gateway"):
        template.from_template("base").add_mcp_server("exa")
    builder = api.Template(tmp_path).from_template("mcp-gateway").add_mcp_server(["exa", "box"])
    assert steps(api, builder) == [("RUN", ["mcp-gateway pull exa box", "root"])]


def test_development_containers_need_their_template(template: Any, api: Surface, tmp_path: Path) -> None:
    builder = template.from_template("base")
    with pytest.raises(BuildException):
        builder.beta_dev_container_prebuild("/srv")
    with pytest.raises(BuildException):
        builder.beta_set_dev_container_start("/srv")
    own = api.Template(tmp_path).from_template("devcontainer").beta_dev_container_prebuild("/srv")
    assert "devcontainer build" in steps(api, own)[0][1][0]
    assert "devcontainer up" in described(api, own.beta_set_dev_container_start("/srv"))["startCmd"]


def test_a_logger_takes_entries(capsys: Any) -> None:
    from datetime import datetime

    from e2b import LogEntry

    log = default_build_logger(min_level="warn")
    log(LogEntry(timestamp=datetime.now(), level="info", message="quiet"))
    default_build_logger()(LogEntry(timestamp=datetime.now(), level="info", message="usual"))
