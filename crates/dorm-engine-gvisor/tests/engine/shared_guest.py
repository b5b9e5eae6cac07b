"""Holds memory that two processes share, and knows what must be in it."""

import mmap
import os
import socket
import struct
import sys

SIZE = 24 << 20
PAGE = 4096
PAGES = SIZE // PAGE
SOCKET = "/root/shared.socket"


def word(page, turn):
    return struct.pack("<QQ", page * 0x9E3779B97F4A7C15 % 2**64, turn)


class Area:
    """Shared memory, or a file in memory, and the turn in which each page was written last."""

    def __init__(self, fd):
        self.fd = fd
        self.turns = [1] * PAGES
        self.map = mmap.mmap(fd, SIZE) if fd >= 0 else mmap.mmap(-1, SIZE)
        for page in range(PAGES):
            self.map[page * PAGE : page * PAGE + 16] = word(page, 1)
            self.map[page * PAGE + PAGE - 16 : page * PAGE + PAGE] = word(page, 1)

    def write(self, page, turn):
        self.map[page * PAGE : page * PAGE + 16] = word(page, turn)
        self.map[page * PAGE + PAGE - 16 : page * PAGE + PAGE] = word(page, turn)

    def compare(self, page, content):
        expected = word(page, self.turns[page]) if self.turns[page] else bytes(16)
        assert content[:16] == expected and content[-16:] == expected, (page, self.turns[page], content[:16])
        assert not any(content[16:-16]), page

    def check(self, pages):
        for page in pages:
            self.compare(page, self.map[page * PAGE : (page + 1) * PAGE])


def child(areas, asked, answers):
    """Does what it is told to the memory that it shares with its parent."""
    for line in os.fdopen(asked):
        action, area, page, turn = line.split()
        area, page, turn = areas[int(area)], int(page), int(turn)
        if action == "write":
            area.write(page, turn)
        area.turns[page] = turn
        area.check([page])
        os.write(answers, b".")
    os._exit(0)


class Guest:
    def __init__(self):
        file = os.open("/dev/shm/shared", os.O_RDWR | os.O_CREAT, 0o600)
        memory = os.memfd_create("shared")
        for fd in (file, memory):
            os.ftruncate(fd, SIZE)
        self.areas = [Area(-1), Area(file), Area(memory)]
        self.private = mmap.mmap(file, SIZE, flags=mmap.MAP_PRIVATE)
        self.owned = {}
        self.turn = 1
        asked, ask = os.pipe()
        answer, answers = os.pipe()
        if os.fork() == 0:
            os.close(ask)
            child(self.areas, asked, answers)
        os.close(asked)
        self.ask, self.answer = os.fdopen(ask, "w", buffering=1), answer

    def tell(self, action, area, page, turn):
        print(action, area, page, turn, file=self.ask)
        assert os.read(self.answer, 1) == b"."

    def look(self):
        """Reads a few pages in each of the ways, before anything is written."""
        for number, area in enumerate(self.areas):
            area.check(range(number, PAGES, 701))
            self.tell("see", number, 11, area.turns[11])
            if area.fd >= 0:
                for page in range(3, PAGES, 397):
                    area.compare(page, os.pread(area.fd, PAGE, page * PAGE))
        for page in range(5, PAGES, 911):
            if page not in self.owned:
                self.areas[1].compare(page, self.private[page * PAGE : (page + 1) * PAGE])

    def change(self):
        """Writes through each process's mappings and with system calls; the other sees it at once."""
        self.turn += 1
        for number, area in enumerate(self.areas):
            for page in range(self.turn, PAGES, 613):
                self.tell("write", number, page, self.turn)
                area.turns[page] = self.turn
                area.check([page, (page + 1) % PAGES])
            for page in range(self.turn + 100, PAGES, 1021):
                if area.fd >= 0:
                    whole = word(page, self.turn) + bytes(PAGE - 32) + word(page, self.turn)
                    assert os.pwrite(area.fd, whole[:1000], page * PAGE) == 1000
                    assert os.pwrite(area.fd, whole[1000:], page * PAGE + 1000) == PAGE - 1000
                else:
                    area.write(page, self.turn)
                area.turns[page] = self.turn
                self.tell("see", number, page, self.turn)
        for page in range(17, PAGES, 1301):
            if page not in self.owned:
                self.areas[1].compare(page, self.private[page * PAGE : (page + 1) * PAGE])
            self.private[page * PAGE] = 255
            self.owned[page] = True

    def cut(self):
        """Shortens the file within a page, and lengthens it again: what was cut off is zero."""
        area, keep = self.areas[1], PAGES // 2
        os.ftruncate(area.fd, keep * PAGE)
        os.ftruncate(area.fd, SIZE)
        area.turns[keep:] = [0] * (PAGES - keep)
        os.ftruncate(area.fd, (keep - 1) * PAGE + 100)
        os.ftruncate(area.fd, SIZE)
        page = area.map[(keep - 1) * PAGE : keep * PAGE]
        assert page[:16] == word(keep - 1, area.turns[keep - 1]) and not any(page[16:])
        area.write(keep - 1, self.turn)
        area.turns[keep - 1] = self.turn
        # Private copies of what is cut off are gone, too.
        self.owned = {owned: True for owned in self.owned if owned < keep - 1}

    def all(self):
        for number, area in enumerate(self.areas):
            area.check(range(PAGES))
            self.tell("see", number, PAGES - 1, area.turns[PAGES - 1])
        for page in self.owned:
            assert self.private[page * PAGE] == 255, page

    def serve(self):
        server = socket.socket(socket.AF_UNIX)
        server.bind(SOCKET)
        server.listen()
        while True:
            client, _ = server.accept()
            try:
                getattr(self, client.recv(16).decode())()
                said = b"right"
            except Exception as error:
                said = repr(error).encode()
            client.sendall(said)
            client.close()


def ask(what):
    client = socket.socket(socket.AF_UNIX)
    client.connect(SOCKET)
    client.sendall(what.encode())
    said = client.recv(1000).decode()
    if said != "right":
        sys.exit(said)


if len(sys.argv) > 1:
    for each in sys.argv[1:]:
        ask(each)
else:
    Guest().serve()
