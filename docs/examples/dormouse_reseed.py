"""Gives this process fresh random numbers whenever its sandbox continues as another one.

A program imports it and calls `watch()` once, early. Each function given to `watch` is called afterwards, in a thread
of its own: for what else must not be the same in two forks, such as open sessions, tickets and cached identifiers.
"""

import os
import random
import socket
import ssl
import threading

DIRECTORY = "/run/dormouse/on-resume.d"


def reseed():
    """Reseeds `random` and OpenSSL. `os.urandom`, `secrets` and `uuid.uuid4` need nothing: they ask the kernel."""
    random.seed(os.urandom(32))
    # Reseeds the primary generator of OpenSSL 3, which asks the kernel as well; that of each thread notices before its
    # next number.
    ssl.RAND_add(os.urandom(64), 64.0)


def watch(*then):
    """Reseeds, and calls `then` in turn, whenever the sandbox takes a new identity; the agent waits for it."""
    path = os.path.join(DIRECTORY, str(os.getpid()))
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    threading.Thread(target=_serve, args=(listener, then), daemon=True).start()


def _serve(listener, then):
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(256)
            reseed()
            for call in then:
                call()
            connection.sendall(b"done\n")
