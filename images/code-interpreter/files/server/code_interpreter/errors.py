"""Requests that cannot be carried out, each with its status."""


class Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
        self.message = message


class KernelEnded(Exception):
    """The program of a context has ended by itself; the text says how."""
