# Runs as root inside the machine of `cargo xtask vm`. Each line of output is a step; the last line
# says that all of them worked.
set -eu -o pipefail
export DORM=/usr/bin/dorm HOME=/root HERE=/root/here DEBIAN_FRONTEND=noninteractive
unset DORM_DATA || true
. /mnt/functions.sh
mkdir -p "$HERE"
cd "$HERE"

step() { echo "vm: $*"; }
trap 'echo "vm: FAILED in line $LINENO: $BASH_COMMAND"; journalctl --no-pager -u dormouse | tail -n 40' ERR

# Waits for a command to succeed.
until_done() {
    for _ in $(seq 600); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.5
    done
    "$@"
}

# Starts a process in a sandbox that counts in its memory.
count_in() {
    dorm sbx exec "$1" -- python3 -c '
import subprocess, sys
subprocess.Popen([sys.executable, "-c", """
import time
n = 0
while True:
    n += 1
    open("/root/count", "w").write(str(n))
    time.sleep(0.05)
"""], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)'
    until_done dorm sbx exec "$1" -- test -s /root/count
}

# The count, once the file is whole.
count() { dorm sbx exec "$1" -- sh -c 'until c=$(cat /root/count) && test -n "$c"; do :; done; echo $c'; }

# The process continues from its memory: a new one would begin at 1.
continues() {
    local after
    after=$(count "$1")
    if [ "$after" -lt "$2" ]; then
        step "the count of $1 was $2 and is $after"
        return 1
    fi
}

step "Debian $(cat /etc/debian_version), $(uname -r), $(systemctl --version | head -n 1), cgroups: $(stat -fc %T /sys/fs/cgroup)"
test "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs

step "apt-get install dormouse.deb"
apt-get install --yes --no-install-recommends /mnt/dormouse.deb >/dev/null

step "dorm doctor"
dorm doctor

step "systemctl enable --now dormouse"
systemctl enable --now dormouse
until_done dorm sbx ls
systemctl is-active dormouse

step "dorm image import"
dorm image import /mnt/base.tar --tag base

step "create, count in memory, suspend, resume"
dorm sbx create keep --image base --memory 256M
count_in keep
before=$(count keep)
dorm sbx suspend keep
dorm sbx resume keep
continues keep "$before"

step "suspend, evict, resume from disk"
before=$(count keep)
dorm sbx suspend keep
dorm sbx evict keep
dorm sbx resume keep
continues keep "$before"

step "the limits of the sandbox are those of a control group below the unit"
groups=$(find /sys/fs/cgroup -path '*/dormouse-sandboxes.service/*' -name memory.max | xargs grep -H .)
step $groups
test -n "$groups"

step "systemctl restart dormouse while a sandbox is suspended"
before=$(count keep)
dorm sbx suspend keep
systemctl restart dormouse
until_done dorm sbx ls
dorm sbx resume keep
continues keep "$before"

step "systemctl restart dormouse while a sandbox runs"
before=$(count keep)
systemctl restart dormouse
until_done dorm sbx ls
continues keep "$before"

step "kill -9 of the daemon while a sandbox runs"
before=$(count keep)
systemctl kill --kill-whom=main --signal=KILL dormouse
until_done dorm sbx ls
continues keep "$before"

step "kill -9 of the process that keeps the control group of sandboxes, while a sandbox runs"
before=$(count keep)
systemctl kill --kill-whom=main --signal=KILL dormouse-sandboxes
until_done sh -c '! systemctl is-active --quiet dormouse-sandboxes'
continues keep "$before"
systemctl restart dormouse
until_done dorm sbx ls
continues keep "$before"
dorm sbx terminate keep

step "the quick start"
while IFS="$(printf '\t')" read -r place line; do
    step "$place  $line"
    eval "$line" </dev/null >"$HERE/output" 2>&1 || { cat "$HERE/output"; false; }
done </mnt/quick-start
systemctl stop dormouse

step "a data directory in /root"
export DORM_DATA=/root/data
if "$DORM" serve --data /root/data --listen 127.0.0.1:7171 >"$HERE/log" 2>&1; then false; fi
grep 'run `chmod o+x /root`' "$HERE/log"
chmod o+x /root
"$DORM" serve --data /root/data --listen 127.0.0.1:7171 >"$HERE/log" 2>&1 &
until_done dorm sbx ls
dorm image import /mnt/base.tar --tag base
dorm sbx create home --image base
count_in home
before=$(count home)
dorm sbx suspend home
dorm sbx resume home
continues home "$before"
dorm sbx terminate home
kill %1
wait %1
echo "vm: done"
