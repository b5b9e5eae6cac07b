# Answers each visit with random numbers of every kind that a Python program draws. Arguments: its port, and whether it
# listens for a new identity.
import concurrent.futures, http.server, json, os, random, ssl, sys, threading, time, uuid

PORT, LISTENS = int(sys.argv[1]), sys.argv[2] == "listens"
HERE = f"/root/{PORT}"
os.makedirs(HERE, exist_ok=True)


def context(side):
    made = ssl.SSLContext(side)
    made.keylog_filename = f"{HERE}/keys"
    return made


server, client = context(ssl.PROTOCOL_TLS_SERVER), context(ssl.PROTOCOL_TLS_CLIENT)
server.load_cert_chain("/root/cert.pem", "/root/key.pem")
client.load_verify_locations("/root/cert.pem")


def session_keys():
    """The secrets of one TLS session between this process and itself."""
    before = os.path.getsize(f"{HERE}/keys")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(up, down, server_side=True), client.wrap_bio(down, up, server_hostname="draws")]
    while ends:
        for end in list(ends):
            try:
                end.do_handshake()
                ends.remove(end)
            except ssl.SSLWantReadError:
                pass
    with open(f"{HERE}/keys") as keys:
        keys.seek(before)
        return sorted({line.split()[0] + " " + line.split()[2] for line in keys if line[0] != "#"})


thread = concurrent.futures.ThreadPoolExecutor(1)


def draw():
    return {
        "uuid": uuid.uuid4().hex,
        "urandom": os.urandom(16).hex(),
        "random": "%032x" % random.getrandbits(128),
        "openssl": ssl.RAND_bytes(16).hex(),
        "openssl_thread": thread.submit(ssl.RAND_bytes, 16).result().hex(),
        "tls": session_keys(),
    }


# How long it ran between the longest stop and the moment at which it had fresh random numbers.
told, gap, done = threading.Event(), [0, 0], [0]


def look_at_clock():
    last = time.monotonic_ns()
    while not told.is_set():
        time.sleep(0.0005)
        now = time.monotonic_ns()
        if now - last > gap[0]:
            gap[:] = [now - last, now]
        last = now


def note():
    done[0] = time.monotonic_ns()
    told.set()


def window():
    return {"stopped_ms": gap[0] / 1e6, "ran_ms": (done[0] - gap[1]) / 1e6} if told.is_set() else None


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/watch":
            threading.Thread(target=look_at_clock, daemon=True).start()
            answer = "watching"
        else:
            answer = {"pid": os.getpid(), "drawn": draw(), "window": window()}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


if LISTENS:
    sys.path.insert(0, "/root")
    import dormouse_reseed

    dormouse_reseed.watch(note)
# Every generator has been in use before the fork.
draw()
http.server.HTTPServer(("0.0.0.0", PORT), Answer).serve_forever()
