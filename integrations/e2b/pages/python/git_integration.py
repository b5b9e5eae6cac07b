"""Git integration. The remote repository is in the sandbox, since the page's are on GitHub."""

from e2b import GitAuthException, Sandbox

from pages import example, main

SANDBOX: list[Sandbox] = []


def prepared() -> tuple[Sandbox, str]:
    """Return a sandbox with a repository that has a remote."""
    if not SANDBOX:
        sandbox = Sandbox.create(timeout=600)
        sandbox.git.init("/home/user/remote.git", bare=True, initial_branch="main")
        sandbox.git.configure_user("Page", "page@example.com")
        sandbox.git.init("/home/user/repo", initial_branch="main")
        sandbox.git.remote_add("/home/user/repo", "origin", "/home/user/remote.git")
        SANDBOX.append(sandbox)
    return SANDBOX[0], "/home/user/repo"


@example("Configure the identity")
def identity() -> None:
    sandbox, path = prepared()
    sandbox.git.configure_user("E2B Bot", "bot@example.com", scope="local", path=path)
    assert sandbox.git.get_config("user.name", scope="local", path=path) == "E2B Bot"


@example("Stage, commit and push")
def commit() -> None:
    sandbox, path = prepared()
    sandbox.files.write(f"{path}/README.md", "hello")
    sandbox.git.add(path)
    sandbox.git.commit(path, "Initial commit", author_name="E2B Bot", author_email="bot@example.com")
    sandbox.git.push(path, remote="origin", branch="main", set_upstream=True)
    assert sandbox.git.status(path).is_clean


@example("Clone, shallow and by branch")
def clone() -> None:
    sandbox, _ = prepared()
    url = "file:///home/user/remote.git"
    sandbox.git.clone(url, path="/home/user/copy")
    sandbox.git.clone(url, path="/home/user/shallow", branch="main", depth=1)
    assert sandbox.files.read("/home/user/shallow/README.md") == "hello"


@example("Status and branches")
def status() -> None:
    sandbox, path = prepared()
    sandbox.git.create_branch(path, "feature/new-docs")
    assert sandbox.git.branches(path).current_branch == "feature/new-docs"
    sandbox.git.checkout_branch(path, "main")
    sandbox.git.delete_branch(path, "feature/new-docs")
    state = sandbox.git.status(path)
    assert (state.current_branch, state.ahead, state.behind) == ("main", 0, 0)


@example("Pull")
def pull() -> None:
    sandbox, path = prepared()
    sandbox.git.pull(path, remote="origin", branch="main")


@example("Remotes")
def remotes() -> None:
    sandbox, path = prepared()
    sandbox.git.remote_add(path, "origin", "/home/user/remote.git", overwrite=True)
    assert sandbox.git.remote_get(path, "origin") == "/home/user/remote.git"


@example("Settings")
def settings() -> None:
    sandbox, path = prepared()
    sandbox.git.set_config("pull.rebase", "false")
    assert sandbox.git.get_config("pull.rebase") == "false"
    sandbox.git.set_config("pull.rebase", "true", scope="local", path=path)
    assert sandbox.git.get_config("pull.rebase", scope="local", path=path) == "true"


@example("Credentials")
def credentials() -> None:
    sandbox, _ = prepared()
    sandbox.git.dangerously_authenticate("page", "token", host="git.example.com", protocol="https")
    assert sandbox.git.get_config("credential.helper") == "store"
    try:
        sandbox.git.clone("http://127.0.0.1:9/private.git", username="page", password="token")
        raise AssertionError("there is no such server")
    except GitAuthException as error:
        raise AssertionError("the server did not refuse the credentials") from error
    except Exception as error:
        assert "127.0.0.1" in str(error)
    sandbox.kill()


if __name__ == "__main__":
    main()
