"""Several ways from one state: a sandbox is forked, each fork tries another fix, and the best one stays."""

from __future__ import annotations

from e2b import CommandExitException, Sandbox

TEST = "from mean import mean\nassert mean([1, 2, 3]) == 2\nassert mean([]) == 0\nprint('passed')\n"
FIXES = [
    "def mean(values): return sum(values) / 2",
    "def mean(values): return sum(values) / len(values)",
    "def mean(values): return sum(values) / len(values) if values else 0",
]


def passes(sandbox: Sandbox, fix: str) -> bool:
    sandbox.files.write("mean.py", fix + "\n")
    try:
        return sandbox.commands.run("python3 test_mean.py").stdout == "passed\n"
    except CommandExitException:
        return False


def main() -> None:
    source = Sandbox.create(timeout=300)
    source.files.write("test_mean.py", TEST)
    forks = source.fork(timeout=300, count=len(FIXES))
    try:
        results = [passes(fork, fix) for fork, fix in zip(forks, FIXES, strict=True)]
        print("passed:", results)
        chosen = forks[results.index(True)]
        print("chosen:", chosen.files.read("mean.py"), end="")
        print("the source has no fix:", not source.files.exists("mean.py"))
    finally:
        for sandbox in [source, *forks]:
            sandbox.kill()


if __name__ == "__main__":
    main()
