# Runs inside: makes changes, and tells what all files are like. The host compares.
import hashlib, json, os, shutil, socket, subprocess, sys, time

BIG = 64 << 20
NOT_LOOKED_AT = ["/proc", "/sys", "/dev", "/dorm-agent", "/.dorm-volumes", "/root/mounted"]


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def attempt(what):
    try:
        what()
    except OSError as error:
        print("not possible here:", error, flush=True)


def change():
    os.umask(0)
    os.mkdir("/dev/shm/notes")
    write("/root/new", b"new\n")
    write("/root/empty", b"")
    write("/root/random", os.urandom(5 << 20))
    # Files of the image: changed, cut, appended to, only their owner, only their time.
    write("/etc/motd", b"changed\n")
    os.truncate("/etc/login.defs", 100)
    with open("/etc/bash.bashrc", "ab") as file:
        file.write(b"more\n")
    os.chown("/etc/issue", 1000, 1001)
    os.utime("/etc/debian_version", ns=(1, 1_234_567_890_123_456_789))
    os.chmod("/usr/share", 0o2751)
    # Removed, removed and made again, renamed.
    os.unlink("/etc/shells")
    shutil.rmtree("/usr/share/doc")
    shutil.rmtree("/etc/selinux")
    os.mkdir("/etc/selinux")
    write("/etc/selinux/fresh", b"fresh")
    os.unlink("/etc/issue.net")
    os.mkdir("/etc/issue.net")
    write("/etc/issue.net/inside", b"a file became a directory")
    shutil.rmtree("/etc/profile.d")
    write("/etc/profile.d", b"a directory became a file")
    os.rename("/etc/skel", "/etc/moved")
    write("/etc/moved/more", b"more")
    os.rename("/etc/environment", "/root/renamed")
    # Names of the same file.
    write("/root/link-a", b"linked")
    os.link("/root/link-a", "/root/link-b")
    os.mkdir("/root/links")
    os.link("/root/link-a", "/root/links/c")
    os.link("/etc/passwd", "/root/passwd")
    # Owners, modes, times, attributes.
    write("/root/special", b"x")
    os.chown("/root/special", 65534, 1234)
    os.chmod("/root/special", 0o6711)
    for name in ["user.comment", "user.\u00e4", "trusted.thing", "security.capability"]:
        attempt(lambda: os.setxattr("/root/special", name, b"value\0of " + name.encode()))
    attempt(lambda: os.setxattr("/root/links", "user.directory", b"yes"))
    os.utime("/root/special", ns=(5, 987_654_321_000_000_001))
    os.mkdir("/root/sticky")
    os.chmod("/root/sticky", 0o1777)
    # Holes.
    with open("/root/sparse", "wb") as file:
        file.truncate(1 << 30)
        file.seek(500 << 20)
        file.write(b"middle" * 3000)
    with open("/root/tail", "wb") as file:
        file.seek(1_000_001)
        file.write(b"end")
    with open("/root/shrunk", "wb") as file:
        file.write(b"z" * 100_000)
        file.truncate(5001)
        file.truncate(9000)
    # Everything that is no file.
    os.symlink("new", "/root/symlink")
    os.symlink("/" + "x" * 300, "/root/symlink-long")
    os.mkfifo("/root/fifo", 0o640)
    keep = [socket.socket(socket.AF_UNIX)]
    keep[0].bind("/root/socket")
    keep[0].listen()
    attempt(lambda: os.mknod("/root/device", 0o020666, os.makedev(1, 3)))
    keep.append(open("/root/unlinked", "w+b"))
    keep[1].write(b"nobody sees this")
    keep[1].flush()
    os.unlink("/root/unlinked")
    # Odd names.
    write(b"/root/\xff\xfe", b"bytes")
    write(b"/root/new\nline", b"line")
    write("/root/" + "n" * 255, b"long")
    # Elsewhere.
    write("/tmp/file", b"in tmp")
    os.mkdir("/tmp/directory", 0o700)
    write("/tmp/directory/inner", os.urandom(100_000))
    os.link("/tmp/file", "/tmp/directory/link")
    write("/dev/shm/secret", b"in shared memory")
    os.makedirs("/root/mounted")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", "mine", "/root/mounted"]).returncode
    print("mounted", mounted, flush=True)
    if mounted == 0:
        write("/root/mounted/secret", b"in a mount of the guest")
    # A second tmpfs over /tmp in a namespace of its own, with the very options of the first.
    other = "mount -t tmpfs -o size=512m,mode=1777 other /tmp && echo no > /tmp/other && echo made && sleep 100000"
    keep.append(subprocess.Popen(["unshare", "-m", "/bin/sh", "-c", other], stdout=subprocess.PIPE))
    print("namespace", keep[-1].stdout.readline(), flush=True)
    # Deep and many.
    path = "/root/deep"
    os.mkdir(path)
    for _ in range(200):
        path += "/d"
        os.mkdir(path)
    write(path + "/bottom", b"bottom")
    for group in range(20):
        os.makedirs(f"/opt/many/{group}")
        for number in range(1000):
            write(f"/opt/many/{group}/{number}", f"{group}/{number}".encode() * (number % 40))
    return keep


def change_more():
    write("/root/new", b"newer\n")
    write("/root/second", b"second generation")
    os.unlink("/root/link-a")
    os.unlink("/root/fifo")
    os.rename("/root/links", "/root/links-moved")
    with open("/root/random", "r+b") as file:
        file.seek(3 << 20)
        file.write(os.urandom(10_000))
    shutil.rmtree("/opt/many/7")
    for number in range(0, 1000, 3):
        os.unlink(f"/opt/many/8/{number}")
    write("/tmp/second", b"in tmp again")
    os.unlink("/tmp/file")
    os.symlink("elsewhere", "/etc/shells")
    shutil.rmtree("/etc/moved")
    return []


def describe(path, since):
    facts = os.lstat(path)
    kind = {0o04: "directory", 0o10: "file", 0o12: "symlink", 0o01: "fifo", 0o14: "socket"}
    kind = kind.get(facts.st_mode >> 12, "device")
    told = {
        "kind": kind,
        "mode": facts.st_mode & 0o7777,
        "user": facts.st_uid,
        "group": facts.st_gid,
        "modified": [facts.st_mtime_ns // 10**9, facts.st_mtime_ns % 10**9],
        "inode": facts.st_ino,
        "attributes": {},
    }
    if kind == "symlink":
        told["target"] = os.readlink(path).hex()
    if kind == "file":
        told["bytes"] = facts.st_size
    if facts.st_ctime_ns >= since or path.startswith(b"/tmp") or path.startswith(b"/etc"):
        if kind == "file":
            told["digest"] = digest(path, facts.st_size)
        if kind in ("file", "directory"):
            attempt(lambda: told.update(attributes=attributes(path)))
    return told


def digest(path, size):
    with open(path, "rb") as file:
        if size > BIG:
            # The middle is enough of what is mostly hole.
            file.seek(500 << 20)
            return hashlib.sha256(file.read(1 << 20)).hexdigest()
        return hashlib.sha256(file.read()).hexdigest()


def attributes(path):
    names = os.listxattr(path, follow_symlinks=False)
    return {os.fsencode(name).hex(): os.getxattr(path, name, follow_symlinks=False).hex() for name in names}


def tell(since, into):
    told = {}
    pending = [b"/"]
    while pending:
        path = pending.pop()
        told[path[1:].hex()] = facts = describe(path, since)
        if facts["kind"] == "directory" and os.fsdecode(path) not in NOT_LOOKED_AT:
            pending.extend(os.path.join(path, name) for name in os.listdir(path))
    with open(into, "w") as file:
        json.dump(told, file)


said = os.open("/dev/shm/said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.dup2(said, 1)
os.dup2(said, 2)
step = sys.argv[1]
if step == "first":
    with open("/dev/shm/since", "w") as file:
        file.write(str(time.time_ns() - 10**9))
    keep = change()
else:
    keep = change_more()
with open("/dev/shm/since") as file:
    tell(int(file.read()), "/dev/shm/told")
os.rename("/dev/shm/told", f"/dev/shm/{step}")
# The socket, the file without a name and the namespace are to be there when the memory is taken.
while True:
    time.sleep(1000)
