"""Support for the cases."""

from pathlib import Path


def git_server_source() -> Path:
    """Return the path of the program that serves git repositories."""
    return Path(__file__).with_name("git_server.py")
