"""Templates: quickstart, definition, start command, build, names, tags, caching, logging, errors."""

import os
import tempfile
from pathlib import Path

import httpx
from e2b import BuildException, Sandbox, Template, default_build_logger, wait_for_port, wait_for_timeout

from pages import example, main, until


def delete(name: str) -> None:
    headers = {"X-API-Key": os.environ["E2B_API_KEY"]}
    httpx.delete(f"{os.environ['E2B_API_URL']}/templates/{name}", headers=headers)


@example("Quickstart: define, build, use")
def quickstart() -> None:
    template = Template().from_base_image().set_envs({"HELLO": "Hello, World!"})
    template = template.set_start_cmd('echo "$HELLO"', wait_for_timeout(1_000))
    Template.build(template, "page-quickstart", cpu_count=1, memory_mb=1024, on_build_logs=default_build_logger())
    with Sandbox.create("page-quickstart") as sandbox:
        assert sandbox.commands.run("echo $HELLO").stdout == "Hello, World!\n"
    delete("page-quickstart")


@example("User and working directory")
def user() -> None:
    template = Template().from_template("base").set_user("root").set_workdir("/srv")
    Template.build(template, "page-user")
    with Sandbox.create("page-user") as sandbox:
        assert sandbox.commands.run("whoami; pwd").stdout == "root\n/srv\n"
    delete("page-user")


@example("Copy files, run commands, set variables")
def define() -> None:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "package.json").write_text("{}")
        template = (
            Template(file_context_path=place)
            .from_template("base")
            .copy("package.json", "/app/package.json", user="user", mode=0o644)
            .run_cmd(["mkdir -p /home/user/a", "touch /home/user/a/b"])
            .make_dir("/home/user/logs")
            .rename("/home/user/a/b", "/home/user/a/c")
            .remove("/home/user/logs", recursive=True)
            .make_symlink("/home/user/a", "/home/user/link")
            .set_envs({"NODE_ENV": "production"})
        )
        Template.build(template, "page-define")
    with Sandbox.create("page-define") as sandbox:
        assert sandbox.commands.run("ls /app link; echo $NODE_ENV").stdout.split() == [
            "/app:",
            "package.json",
            "link:",
            "c",
            "production",
        ]
    delete("page-define")


@example("From a Dockerfile")
def dockerfile() -> None:
    template = Template().from_dockerfile("FROM base\nWORKDIR /app\nRUN echo built > file\n")
    Template.build(template, "page-dockerfile")
    with Sandbox.create("page-dockerfile") as sandbox:
        assert sandbox.files.read("/app/file") == "built\n"
    delete("page-dockerfile")


@example("Start and ready commands")
def start() -> None:
    template = Template().from_template("base").set_start_cmd("python3 -m http.server 8000", wait_for_port(8000))
    Template.build(template, "page-start")
    with Sandbox.create("page-start") as sandbox:
        assert "200 OK" in sandbox.commands.run("curl -sI http://localhost:8000").stdout
    delete("page-start")


@example("Build in the background, and ask for the status")
def background() -> None:
    template = Template().from_template("base").run_cmd("echo built")
    info = Template.build_in_background(template, "page-background", cpu_count=1, memory_mb=512)
    status = until(lambda: (s := Template.get_build_status(info)).status.value in ("ready", "error") and s)
    assert status.status.value == "ready"
    delete("page-background")


@example("Names: existence")
def exists() -> None:
    assert Template.exists("base")
    assert not Template.exists("page-not-there")


@example("Tags: build, assign, use, remove")
def tags() -> None:
    template = Template().from_template("base").set_envs({"VERSION": "1"})
    Template.build(template, "page-tags:v1", tags=["latest"])
    Template.assign_tags("page-tags:v1", ["production"])
    with Sandbox.create("page-tags:production") as sandbox:
        assert sandbox.commands.run("echo $VERSION").stdout == "1\n"
    assert {"v1", "latest", "production"} <= {tag.tag for tag in Template.get_tags("page-tags")}
    Template.remove_tags("page-tags", "production")
    assert "production" not in {tag.tag for tag in Template.get_tags("page-tags")}
    delete("page-tags")


@example("Caching: a part, and all")
def caching() -> None:
    def built(**options: bool) -> list[str]:
        random = "od -An -N8 -tx8 /dev/urandom >"
        template = Template().from_template("base").run_cmd(f"{random} /tmp/1").skip_cache().run_cmd(f"{random} /tmp/2")
        Template.build(template, "page-caching", **options)
        with Sandbox.create("page-caching") as sandbox:
            return sandbox.commands.run("cat /tmp/1 /tmp/2").stdout.split()

    first, second, third = built(), built(), built(skip_cache=True)
    assert (first[0] == second[0], first[1] == second[1], first[0] == third[0]) == (True, False, False)
    delete("page-caching")


@example("Logging")
def logging() -> None:
    entries = []
    Template.build(
        Template().from_template("base").run_cmd("echo a line of the log"),
        "page-logging",
        on_build_logs=entries.append,
    )
    assert any("a line of the log" in entry.message for entry in entries)
    delete("page-logging")


@example("Errors")
def errors() -> None:
    try:
        Template.build(Template().from_template("base").run_cmd("exit 7"), "page-errors")
        raise AssertionError("it was built")
    except BuildException as error:
        assert "7" in str(error)
    delete("page-errors")


if __name__ == "__main__":
    main()
