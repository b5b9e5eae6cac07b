"""The helpers for git. The remote is a bare repository in the sandbox."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2b import CommandExitException, GitAuthException, GitUpstreamException, InvalidArgumentException

from support import git_server_source
from support.guest import output
from support.waiting import eventually

WHO = {"author_name": "Ann Example", "author_email": "ann@example.com"}
COMMON: dict[str, Any] = {
    "envs": {"GIT_PAGER": "cat"},
    "user": "user",
    "cwd": "/tmp",
    "timeout": 60,
    "request_timeout": 60,
}
"""The options that every method has."""


@pytest.fixture
def git(sandbox: Any) -> Any:
    return sandbox.git


@pytest.fixture
def repo(sandbox: Any, git: Any, home: str) -> str:
    """A repository with one commit on its branch `main`."""
    path = f"{home}/repo"
    git.init(path, initial_branch="main")
    sandbox.files.write(f"{path}/note", "first\n")
    git.add(path)
    git.commit(path, "first", **WHO)
    return path


@pytest.fixture
def remote(sandbox: Any, git: Any, home: str, repo: str) -> str:
    """A bare repository that is the remote `origin` of the other one, with its branch."""
    path = f"{home}/remote.git"
    git.init(path, bare=True, initial_branch="main")
    git.remote_add(repo, "origin", path)
    git.push(repo, remote="origin", branch="main")
    return path


def log(sandbox: Any, path: str) -> list[str]:
    return output(sandbox, "git log --format=%s", cwd=path).splitlines()


def test_a_new_repository_is_empty(sandbox: Any, git: Any, home: str) -> None:
    git.init(f"{home}/new", initial_branch="trunk")
    status = git.status(f"{home}/new")
    assert status.current_branch == "trunk"
    assert (status.is_clean, status.has_changes, status.total_count) == (True, False, 0)
    assert sandbox.files.exists(f"{home}/new/.git/HEAD")


def test_a_bare_repository_has_no_work_tree(sandbox: Any, git: Any, home: str) -> None:
    git.init(f"{home}/bare", bare=True)
    assert output(sandbox, "git rev-parse --is-bare-repository", cwd=f"{home}/bare") == "true"


def test_a_commit_has_message_and_author(sandbox: Any, repo: str) -> None:
    said = output(sandbox, "git log --format='%s|%an|%ae'", cwd=repo)
    assert said == "first|Ann Example|ann@example.com"


def test_a_status_tells_of_every_kind_of_change(sandbox: Any, git: Any, repo: str) -> None:
    for name in ["changed", "removed", "renamed"]:
        sandbox.files.write(f"{repo}/{name}", f"{name}\n" * 10)
    git.add(repo)
    git.commit(repo, "more", **WHO)
    sandbox.files.write(f"{repo}/changed", "other")
    sandbox.files.write(f"{repo}/new", "new")
    sandbox.files.write(f"{repo}/staged", "staged")
    output(sandbox, "git rm -q removed; git mv renamed moved; git add staged", cwd=repo)
    status = git.status(repo)
    found = {file.name: (file.status, file.staged) for file in status.file_status}
    assert found == {
        "changed": ("modified", False),
        "new": ("untracked", False),
        "staged": ("added", True),
        "removed": ("deleted", True),
        "moved": ("renamed", True),
    }
    assert next(file.renamed_from for file in status.file_status if file.name == "moved") == "renamed"
    assert (status.has_changes, status.has_staged, status.has_untracked) == (True, True, True)
    assert (status.total_count, status.staged_count, status.unstaged_count) == (5, 3, 2)
    assert (status.untracked_count, status.conflict_count, status.has_conflicts) == (1, 0, False)


def test_conflicts_are_shown(sandbox: Any, git: Any, repo: str) -> None:
    git.create_branch(repo, "side")
    sandbox.files.write(f"{repo}/note", "side\n")
    git.add(repo)
    git.commit(repo, "side", **WHO)
    git.checkout_branch(repo, "main")
    sandbox.files.write(f"{repo}/note", "main\n")
    git.add(repo)
    git.commit(repo, "main", **WHO)
    output(sandbox, "git -c user.name=a -c user.email=a@example.com merge side || true", cwd=repo)
    status = git.status(repo)
    assert (status.has_conflicts, status.conflict_count) == (True, 1)


def test_some_files_can_be_added(sandbox: Any, git: Any, repo: str) -> None:
    for name in ["one", "two", "three"]:
        sandbox.files.write(f"{repo}/{name}", name)
    git.add(repo, files=["one", "two"])
    assert git.status(repo).staged_count == 2
    git.add(repo, all=False)
    assert git.status(repo).staged_count == 3


def test_a_commit_without_changes_must_be_permitted(sandbox: Any, git: Any, repo: str) -> None:
    with pytest.raises(CommandExitException):
        git.commit(repo, "nothing", **WHO)
    git.commit(repo, "nothing", allow_empty=True, **WHO)
    assert log(sandbox, repo) == ["nothing", "first"]


def test_branches_are_made_listed_changed_and_deleted(git: Any, repo: str) -> None:
    git.create_branch(repo, "feature")
    branches = git.branches(repo)
    assert (sorted(branches.branches), branches.current_branch) == (["feature", "main"], "feature")
    git.checkout_branch(repo, "main")
    assert git.branches(repo).current_branch == "main"
    git.delete_branch(repo, "feature")
    assert git.branches(repo).branches == ["main"]


def test_a_branch_that_is_not_merged_is_deleted_by_force(sandbox: Any, git: Any, repo: str) -> None:
    git.create_branch(repo, "feature")
    sandbox.files.write(f"{repo}/feature", "text")
    git.add(repo)
    git.commit(repo, "feature", **WHO)
    git.checkout_branch(repo, "main")
    with pytest.raises(CommandExitException):
        git.delete_branch(repo, "feature", force=False)
    git.delete_branch(repo, "feature", force=True)
    assert git.branches(repo).branches == ["main"]


def test_a_branch_that_does_not_exist_cannot_be_checked_out(git: Any, repo: str) -> None:
    with pytest.raises(CommandExitException):
        git.checkout_branch(repo, "none")


@pytest.mark.parametrize(("mode", "kept"), [("soft", True), ("mixed", True), ("hard", False)])
def test_a_reset_takes_a_commit_back(sandbox: Any, git: Any, repo: str, mode: str, kept: bool) -> None:
    sandbox.files.write(f"{repo}/second", "text")
    git.add(repo)
    git.commit(repo, "second", **WHO)
    git.reset(repo, mode=mode, target="HEAD~1")
    assert log(sandbox, repo) == ["first"]
    assert sandbox.files.exists(f"{repo}/second") is kept


def test_a_reset_of_paths_unstages_them(sandbox: Any, git: Any, repo: str) -> None:
    sandbox.files.write(f"{repo}/new", "text")
    git.add(repo)
    git.reset(repo, paths=["new"])
    assert git.status(repo).staged_count == 0


def test_a_mode_of_reset_that_does_not_exist_is_refused(git: Any, repo: str) -> None:
    with pytest.raises(InvalidArgumentException):
        git.reset(repo, mode="gentle")


def test_files_are_restored(sandbox: Any, git: Any, repo: str) -> None:
    sandbox.files.write(f"{repo}/note", "changed")
    git.restore(repo, ["note"])
    assert sandbox.files.read(f"{repo}/note") == "first\n"
    sandbox.files.write(f"{repo}/note", "changed")
    git.add(repo)
    git.restore(repo, ["note"], staged=True, worktree=True, source="HEAD")
    assert git.status(repo).is_clean
    assert sandbox.files.read(f"{repo}/note") == "first\n"


def test_a_clone_has_the_history(sandbox: Any, git: Any, home: str, remote: str) -> None:
    git.clone(remote, f"{home}/copy")
    assert log(sandbox, f"{home}/copy") == ["first"]
    status = git.status(f"{home}/copy")
    assert (status.current_branch, status.upstream, status.detached) == ("main", "origin/main", False)


def test_a_clone_can_be_of_one_branch_and_shallow(sandbox: Any, git: Any, home: str, repo: str, remote: str) -> None:
    git.commit(repo, "second", allow_empty=True, **WHO)
    git.create_branch(repo, "side")
    git.commit(repo, "third", allow_empty=True, **WHO)
    git.push(repo, remote="origin", branch="side")
    git.clone(f"file://{remote}", f"{home}/copy", branch="side", depth=1)
    assert log(sandbox, f"{home}/copy") == ["third"]


def test_a_push_and_a_pull_carry_commits(sandbox: Any, git: Any, home: str, repo: str, remote: str) -> None:
    git.clone(remote, f"{home}/copy")
    git.commit(repo, "second", allow_empty=True, **WHO)
    git.push(repo)
    git.pull(f"{home}/copy")
    assert log(sandbox, f"{home}/copy") == ["second", "first"]
    git.commit(repo, "third", allow_empty=True, **WHO)
    assert (git.status(repo).ahead, git.status(repo).behind) == (1, 0)
    git.push(repo, remote="origin", branch="main", set_upstream=False)
    git.pull(f"{home}/copy", remote="origin", branch="main")
    assert log(sandbox, f"{home}/copy")[0] == "third"


def test_a_push_or_pull_without_upstream_is_refused(git: Any, repo: str) -> None:
    git.remote_add(repo, "origin", "/no/such")
    with pytest.raises(GitUpstreamException):
        git.pull(repo)
    with pytest.raises((GitUpstreamException, CommandExitException)):
        git.push(repo, set_upstream=False)


def test_remotes_are_added_and_found(git: Any, repo: str, remote: str) -> None:
    assert git.remote_get(repo, "origin") == remote
    assert git.remote_get(repo, "other") is None
    git.remote_add(repo, "other", remote, fetch=True)
    assert git.remote_get(repo, "other") == remote
    with pytest.raises(CommandExitException):
        git.remote_add(repo, "other", "/elsewhere")
    git.remote_add(repo, "other", "/elsewhere", overwrite=True)
    assert git.remote_get(repo, "other") == "/elsewhere"


def test_settings_are_kept_for_a_repository(git: Any, repo: str) -> None:
    git.set_config("core.editor", "true", scope="local", path=repo)
    assert git.get_config("core.editor", scope="local", path=repo) == "true"
    assert git.get_config("no.such", scope="local", path=repo) is None


def test_settings_are_kept_for_a_user(sandbox: Any, git: Any, unique: str) -> None:
    git.set_config(f"case.{unique}", "value", scope="global")
    assert git.get_config(f"case.{unique}", scope="global") == "value"
    assert git.get_config(f"case.{unique}", scope="global", user="root") is None


def test_the_author_can_be_set_once(sandbox: Any, git: Any, repo: str) -> None:
    git.configure_user("Ben Example", "ben@example.com", scope="local", path=repo)
    git.commit(repo, "by ben", allow_empty=True)
    assert output(sandbox, "git log -1 --format='%an|%ae'", cwd=repo) == "Ben Example|ben@example.com"


@pytest.mark.parametrize("arguments", [("", "x@example.com"), ("Name", "")])
def test_an_author_without_name_or_address_is_refused(git: Any, arguments: tuple[str, str]) -> None:
    with pytest.raises(InvalidArgumentException):
        git.configure_user(*arguments)


@pytest.fixture
def private(sandbox: Any, home: str, remote: str) -> str:
    """The URL of the remote behind a password."""
    output(sandbox, "git config http.receivepack true", cwd=remote)
    script = f"{home}/git_server.py"
    sandbox.files.write(script, Path(git_server_source()).read_text())
    port = output(sandbox, "python3 -c 'import socket; s = socket.create_server((\"\", 0)); print(s.getsockname()[1])'")
    sandbox.commands.run(f"python3 {script} {home} {port} ann secret", background=True, timeout=0)
    url = f"http://127.0.0.1:{port}"
    eventually(lambda: output(sandbox, f"curl -s -o /dev/null -w '%{{http_code}}' {url} || true") == "401")
    return f"{url}/remote.git"


def test_a_private_repository_needs_credentials(git: Any, home: str, private: str) -> None:
    with pytest.raises(GitAuthException):
        git.clone(private, f"{home}/copy")
    with pytest.raises(GitAuthException):
        git.clone(private, f"{home}/copy", username="ann", password="wrong")


def test_credentials_are_used_and_not_kept(sandbox: Any, git: Any, home: str, repo: str, private: str) -> None:
    git.clone(private, f"{home}/copy", username="ann", password="secret")
    assert git.remote_get(f"{home}/copy", "origin") == private
    git.commit(f"{home}/copy", "second", allow_empty=True, **WHO)
    with pytest.raises(GitAuthException):
        git.push(f"{home}/copy")
    git.push(f"{home}/copy", username="ann", password="secret")
    with pytest.raises(GitAuthException):
        git.pull(f"{home}/copy")
    git.pull(f"{home}/copy", username="ann", password="secret")
    assert "secret" not in sandbox.files.read(f"{home}/copy/.git/config")


def test_credentials_are_kept_if_told(git: Any, home: str, private: str) -> None:
    git.clone(private, f"{home}/copy", username="ann", password="secret", dangerously_store_credentials=True)
    assert "ann:secret@" in git.remote_get(f"{home}/copy", "origin")
    git.pull(f"{home}/copy")


def test_credentials_can_be_stored_for_a_host(sandbox: Any, git: Any, home: str, private: str) -> None:
    host = private.split("/")[2]
    git.dangerously_authenticate("ann", "secret", host=host, protocol="http")
    try:
        git.clone(private, f"{home}/copy")
        assert git.get_config("credential.helper") == "store"
    finally:
        output(sandbox, "git config --global --unset credential.helper; rm -f ~/.git-credentials")


def test_a_password_without_a_name_is_refused(git: Any, home: str, repo: str) -> None:
    with pytest.raises(InvalidArgumentException):
        git.clone("http://127.0.0.1/x.git", f"{home}/copy", password="secret")
    with pytest.raises(InvalidArgumentException):
        git.push(repo, password="secret")
    with pytest.raises(InvalidArgumentException):
        git.pull(repo, password="secret")


def test_every_helper_takes_the_options_of_a_command(sandbox: Any, git: Any, home: str, repo: str, remote: str) -> None:
    calls: dict[str, Callable[..., Any]] = {
        "init": lambda **o: git.init(f"{home}/other", **o),
        "status": lambda **o: git.status(repo, **o),
        "add": lambda **o: git.add(repo, **o),
        "commit": lambda **o: git.commit(repo, "again", allow_empty=True, **WHO, **o),
        "branches": lambda **o: git.branches(repo, **o),
        "create_branch": lambda **o: git.create_branch(repo, "new", **o),
        "checkout_branch": lambda **o: git.checkout_branch(repo, "main", **o),
        "delete_branch": lambda **o: git.delete_branch(repo, "new", force=True, **o),
        "reset": lambda **o: git.reset(repo, **o),
        "restore": lambda **o: git.restore(repo, ["note"], **o),
        "remote_get": lambda **o: git.remote_get(repo, "origin", **o),
        "remote_add": lambda **o: git.remote_add(repo, "third", remote, **o),
        "push": lambda **o: git.push(repo, remote="origin", branch="main", **o),
        "pull": lambda **o: git.pull(repo, remote="origin", branch="main", **o),
        "clone": lambda **o: git.clone(remote, f"{home}/clone", **o),
        "set_config": lambda **o: git.set_config("case.some", "x", **o),
        "get_config": lambda **o: git.get_config("case.some", **o),
        "configure_user": lambda **o: git.configure_user("A", "a@example.com", scope="local", path=repo, **o),
        "dangerously_authenticate": lambda **o: git.dangerously_authenticate("a", "b", **o),
    }
    known = {name for name, _ in inspect.getmembers(git.target if hasattr(git, "target") else git) if name[0] != "_"}
    assert set(calls) == known
    for call in calls.values():
        call(**COMMON)
    output(sandbox, "git config --global --unset credential.helper; rm -f ~/.git-credentials")
