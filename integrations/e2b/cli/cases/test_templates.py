"""Commands for templates, and for the account."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from e2b import Sandbox, Template

from support.cli import Cli

Create = Callable[..., Sandbox]
DOCKERFILE = "FROM base\nENV BUILT=yes\nRUN echo made > /home/user/made\n"


@pytest.fixture
def name(unique: str) -> Iterator[str]:
    """A name of a template that is deleted at the end of the case."""
    yield unique
    headers = {"X-API-Key": os.environ["E2B_API_KEY"]}
    httpx.delete(f"{os.environ['E2B_API_URL']}/templates/{unique}", headers=headers)


def test_a_template_is_created_from_a_dockerfile(cli: Cli, create: Create, name: str, tmp_path: Path) -> None:
    (tmp_path / "e2b.Dockerfile").write_text(DOCKERFILE)
    cli.ok("template", "create", name)
    sandbox = create(name)
    assert sandbox.commands.run("cat made; echo $BUILT").stdout == "made\nyes\n"


def test_a_template_is_created_with_its_options(cli: Cli, create: Create, name: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("copied")
    (tmp_path / "there" / "My.Dockerfile").write_text("FROM base\nCOPY file /srv/file\n")
    cli.ok(
        *["template", "create", name, "--path", "there", "--dockerfile", "My.Dockerfile"],
        *["--cmd", "touch /tmp/started; sleep infinity", "--ready-cmd", "test -f /tmp/started"],
        *["--cpu-count", "1", "--memory-mb", "512", "--min-free-disk-mb", "100", "--no-cache"],
    )
    sandbox = create(name)
    info = sandbox.get_info()
    assert (info.cpu_count, info.memory_mb) == (1, 512)
    assert sandbox.files.read("/srv/file") == "copied"
    assert sandbox.files.exists("/tmp/started")


def test_the_failing_step_of_a_template_is_shown(cli: Cli, name: str, tmp_path: Path) -> None:
    (tmp_path / "e2b.Dockerfile").write_text("FROM base\nRUN echo the reason >&2; exit 3\n")
    ran = cli.run("template", "create", name)
    assert ran.code != 0
    assert "the reason" in ran.all


@pytest.fixture
def template(name: str, tmp_path: Path) -> str:
    Template.build(Template(file_context_path=tmp_path).from_template("base").run_cmd("true"), name)
    return name


def test_templates_are_listed(cli: Cli, template: str) -> None:
    assert template in cli.ok("template", "list").all
    listed = cli.ok("template", "list", "--format", "json").json()
    mine = next(one for one in listed if template in json.dumps(one))
    assert mine["templateID"]
    assert template in cli.ok("tpl", "ls", "--project", "any", "-f", "json").out


def test_a_template_is_deleted(cli: Cli, template: str) -> None:
    cli.ok("template", "delete", "--yes", template)
    assert Template.exists(template) is False


def test_a_template_is_deleted_after_a_question(cli: Cli, template: str) -> None:
    with cli.terminal("template", "delete", template) as terminal:
        terminal.shows("?")
        terminal.type("y\r")
        assert terminal.wait() == 0, terminal.text
    assert Template.exists(template) is False


def test_a_template_is_chosen_from_a_list(cli: Cli, template: str) -> None:
    for command in ["delete", "publish", "unpublish"]:
        if command == "unpublish":
            cli.ok("template", "publish", "--yes", template)
        with cli.terminal("template", command, "--select", "--project", "any") as terminal:
            terminal.shows(template)
            terminal.type("\x03")
    assert Template.exists(template) is True


def test_a_template_is_published_and_withdrawn(cli: Cli, template: str) -> None:
    for command in ["publish", "unpublish"]:
        ran = cli.run("template", command, "--yes", template)
        assert ran.code == 0, ran.all


@pytest.mark.parametrize("language", ["typescript", "python-sync", "python-async"])
def test_a_project_for_a_template_is_begun(cli: Cli, tmp_path: Path, language: str, unique: str) -> None:
    cli.ok("template", "init", "--name", unique, "--language", language, "--path", str(tmp_path))
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "node_modules" not in str(path)]
    assert any(unique in path.read_text() for path in written)


@pytest.mark.parametrize("language", ["typescript", "python-sync", "python-async"])
def test_an_older_project_is_migrated(cli: Cli, tmp_path: Path, language: str, unique: str) -> None:
    (tmp_path / "e2b.Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "e2b.toml").write_text(
        f'template_id = "{unique}"\ntemplate_name = "{unique}"\ndockerfile = "e2b.Dockerfile"\n'
    )
    cli.ok(
        *["template", "migrate", "--path", str(tmp_path), "--language", language, "--name", unique],
        *["--dockerfile", "e2b.Dockerfile", "--config", "e2b.toml", "--cmd", "sleep infinity"],
        *["--ready-cmd", "true", "--cpu-count", "1", "--memory-mb", "512"],
    )
    written = "\n".join(path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".ts", ".py"))
    assert unique in written
    assert "BUILT" in written


def test_the_account_is_not_logged_in(cli: Cli) -> None:
    assert "ot logged in" in cli.run("auth", "info").all
    assert cli.run("auth", "logout").code in (0, 1)


def test_a_login_needs_the_dashboard_of_the_cloud(cli: Cli) -> None:
    with cli.terminal("auth", "login") as terminal:
        terminal.shows("https://")


def test_a_choice_of_the_team_needs_a_login(cli: Cli) -> None:
    assert "No user config found" in cli.run("auth", "configure").all


def test_the_version_is_shown(cli: Cli) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", cli.ok("--version").out.strip())
    assert "sandbox" in cli.ok("help").out
