"""The guest of `dorm prove --soak`: processes that write memory and files all the time.

The content of each area of memory follows from a seed and a number of steps, from which the host
computes it, too. `run SEED` starts everything, `ask` prints one line of JSON.
"""

import ctypes
import hashlib
import json
import mmap
import os
import socket
import struct
import sys
import threading
import time

PAGE = 4096
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
SOCKET = "/root/soak.sock"
ERRORS = "/root/soak.errors"
FILE = "/root/soak.data"
# The host has the same list, in the same order.
AREAS = {"heap": 32 << 20, "file": 8 << 20, "shared": 8 << 20}


def mixed(value):
    """The finalizer of SplitMix64."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class Area:
    """Pages, of which each step fills one with one word: in memory, or in the file that is mapped there."""

    def __init__(self, seed, memory, file=None):
        self.seed = seed
        self.memory = memory
        self.file = file
        self.pages = len(memory) // PAGE
        self.steps = 0

    def step(self):
        word = mixed((self.seed + self.steps * GOLDEN) & MASK)
        at = word % self.pages * PAGE
        content = struct.pack("<Q", word) * (PAGE // 8)
        if self.file is not None and self.steps % 2:
            cut = word % PAGE
            os.pwrite(self.file, content[:cut], at)
            os.pwrite(self.file, content[cut:], at + cut)
        else:
            self.memory[at : at + PAGE] = content
        self.steps += 1

    def digest(self):
        return hashlib.sha256(self.memory).hexdigest()


def complain(what):
    with open(ERRORS, "a") as errors:
        errors.write(f"{what}\n")


def count(counters, which):
    at = which * 8
    number = struct.unpack_from("<Q", counters, at)[0]
    struct.pack_into("<Q", counters, at, number + 1)


def fork_for_ever(seed, counters):
    """Each child must see the memory of its parent, and the parent nothing of what a child writes."""
    area = Area(seed, bytearray(4 << 20))
    while True:
        for _ in range(200):
            area.step()
        expected = area.digest()
        child = os.fork()
        if child == 0:
            code = 1
            if area.digest() == expected:
                own = os.urandom(PAGE)
                for page in range(area.pages):
                    area.memory[page * PAGE : (page + 1) * PAGE] = own
                code = 0 if bytes(area.memory) == own * area.pages else 2
            os._exit(code)
        status = os.waitpid(child, 0)[1]
        if status != 0:
            complain(f"a forked process ended with {status}")
        if area.digest() != expected:
            complain("a forked process changed the memory of its parent")
        count(counters, 0)
        time.sleep(0.3)


def compile_for_ever(counters):
    """Writes functions into executable memory and calls each."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, 16 * PAGE, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    number = 0
    while True:
        for _ in range(500):
            number += 1
            at = number * 64 % len(memory)
            value = mixed(number) & 0x7FFFFFFF
            # mov eax, VALUE; ret
            memory[at : at + 6] = b"\xb8" + struct.pack("<I", value) + b"\xc3"
            result = ctypes.CFUNCTYPE(ctypes.c_int)(base + at)()
            if result != value:
                complain(f"a compiled function returned {result} instead of {value}")
        count(counters, 1)
        time.sleep(0.2)


def write_for_ever(areas, lock):
    while True:
        with lock:
            for area in areas.values():
                for _ in range(32):
                    area.step()
        time.sleep(0.02)


def report(areas, counters):
    """The present content of the areas, and everything that was found."""
    areas["file"].memory.flush()
    for name, area in areas.items():
        if area.file is not None:
            if hashlib.sha256(os.pread(area.file, AREAS[name], 0)).hexdigest() != area.digest():
                complain(f"the content of the file {name} differs from its mapping")
    forks, compiled = struct.unpack_from("<QQ", counters, 0)
    errors = open(ERRORS).read() if os.path.exists(ERRORS) else ""
    held = [{"steps": area.steps, "digest": area.digest()} for area in areas.values()]
    return {"areas": held, "forks": forks, "compiled": compiled, "errors": errors}


def run(seed):
    counters = mmap.mmap(-1, PAGE)
    for work in (lambda: fork_for_ever(seed ^ 0xF0, counters), lambda: compile_for_ever(counters)):
        if os.fork() == 0:
            try:
                work()
            except BaseException as error:
                complain(f"a process ended: {error!r}")
            os._exit(1)
    files = {"heap": None, "file": os.open(FILE, os.O_RDWR | os.O_CREAT, 0o600), "shared": os.memfd_create("soak")}
    areas = {}
    for place, (name, size) in enumerate(AREAS.items()):
        if files[name] is not None:
            os.truncate(files[name], size)
        memory = bytearray(size) if files[name] is None else mmap.mmap(files[name], size)
        areas[name] = Area(seed + place, memory, files[name])
    lock = threading.Lock()
    threading.Thread(target=write_for_ever, args=(areas, lock), daemon=True).start()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(SOCKET)
    listener.listen(8)
    while True:
        caller = listener.accept()[0]
        with lock:
            answer = report(areas, counters)
        try:
            caller.sendall(json.dumps(answer).encode())
        except OSError:
            # The caller was ended with the exec that it belonged to.
            pass
        caller.close()


def ask():
    end = time.monotonic() + 60
    while True:
        caller = socket.socket(socket.AF_UNIX)
        try:
            caller.connect(SOCKET)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
    answer = b""
    while part := caller.recv(65536):
        answer += part
    print(answer.decode())


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(int(sys.argv[2]))
    else:
        ask()
