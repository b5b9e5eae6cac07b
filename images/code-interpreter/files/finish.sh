#!/bin/sh
# Puts in place what is not in the directory of the code interpreter; runs as root while the image is built.
set -eu
cd /opt/code-interpreter
python3 -m compileall -q server kernel
mkdir -p /etc/dormouse/on-resume.d
mv variables-hook /etc/dormouse/on-resume.d/code-interpreter
# Python looks for a user's own packages only where the directory exists when it starts.
own=$(su user -c 'python3 -m site --user-site')
install -d -o user -g user /home/user/.local /home/user/.local/lib "$(dirname "$own")" "$own"
rm finish.sh
