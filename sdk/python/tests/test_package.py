"""The package is built, installed in a new environment, and imported there."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from generated import PROJECT

IMPORTS = """
import pathlib, dormouse, dormouse.errors, dormouse.tools, dormouse.types
print(pathlib.Path(dormouse.__file__).parent)
assert dormouse.Client and (pathlib.Path(dormouse.__file__).parent / "py.typed").exists()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def test_the_archives_have_what_belongs_in_them(built: Path) -> None:
    (wheel,) = built.glob("dormouse_sandbox-*.whl")
    (archive,) = built.glob("dormouse_sandbox-*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"dormouse/__init__.py", "dormouse/py.typed", "dormouse/_sync/client.py"} <= names
    assert all(name.startswith(("dormouse/", "dormouse_sandbox-")) for name in names)
    with tarfile.open(archive) as tar:
        tops = {name.split("/")[1] for name in tar.getnames() if "/" in name}
    assert tops == {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src", ".gitignore"}


def test_the_wheel_is_installed_and_imported(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    # The dependencies are those of this environment, so that the test needs no network.
    (site,) = tmp_path.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run(
        [python, "-W", "error", "-c", IMPORTS], check=True, stdout=subprocess.PIPE, text=True
    )
    assert Path(done.stdout.strip()) == site / "dormouse"
