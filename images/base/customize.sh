#!/bin/sh
# Makes a Debian system whose root is $1 an image for sandboxes. It works in every mode of mmdebstrap, even if nothing
# can be started in the new system.
set -eu
cd "$1"
echo 'user:x:1000:1000::/home/user:/bin/bash' >> etc/passwd
echo 'user:x:1000:' >> etc/group
echo 'user:!:19000:0:99999:7:::' >> etc/shadow
echo 'user:!::' >> etc/gshadow
mkdir -p home/user
cp -a etc/skel/. home/user/
chown -R 1000:1000 home/user
mkdir -p etc/sudoers.d
echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' > etc/sudoers.d/user
chmod 0440 etc/sudoers.d/user
echo sandbox > etc/hostname
printf '127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n' > etc/hosts
# A sandbox is not a host whose Python packages must be protected from its user.
rm -f usr/lib/python3*/EXTERNALLY-MANAGED
rm -f etc/resolv.conf
echo 'nameserver 10.0.0.1' > etc/resolv.conf
: > etc/machine-id
rm -f var/cache/ldconfig/aux-cache var/log/*.log var/log/apt/*
