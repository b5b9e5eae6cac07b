#!/bin/bash
# CLI: sandboxes and templates. Prints the result of each example as a line of JSON.
set -u
E2B="$(dirname "$0")/../../cli/node_modules/.bin/e2b"
HOME=$(mktemp -d)
export HOME NO_COLOR=1
trap 'rm -rf "$HOME"' EXIT
failed=0

# Runs a function, which must succeed.
example() {
    local result="as promised"
    if ! ("$2") >&2; then
        result="failed"
        failed=1
    fi
    printf '{"example": "%s", "result": "%s"}\n' "$1" "$result"
}

# Prints the id of a new sandbox.
new() {
    "$E2B" sandbox create base --detach | grep -oE '[a-z0-9]{18,}' | head -1
}

create_and_list() {
    id=$(new) && "$E2B" sandbox list | grep -q "$id" && "$E2B" sandbox kill "$id"
}

connect() {
    id=$(new)
    printf 'echo $((40 + 2))\nexit\n' | script -qec "$E2B sandbox connect $id" /dev/null | grep -q 42
    local connected=$?
    "$E2B" sandbox kill "$id"
    return $connected
}

execute() {
    id=$(new)
    [ "$("$E2B" sandbox exec "$id" echo hello)" = hello ] \
        && [ "$("$E2B" sandbox exec --user root --cwd /tmp --env A=b "$id" sh -c 'echo $(whoami) $PWD $A')" = "root /tmp b" ] \
        && [ "$(echo piped | "$E2B" sandbox exec "$id" cat)" = piped ]
    local executed=$?
    "$E2B" sandbox kill "$id"
    return $executed
}

shut_down() {
    id=$(new) && "$E2B" sandbox kill "$id" && ! "$E2B" sandbox info "$id"
}

pause_and_resume() {
    id=$(new)
    "$E2B" sandbox pause "$id" && "$E2B" sandbox list --state paused | grep -q "$id" && "$E2B" sandbox resume "$id" \
        && "$E2B" sandbox list --state running | grep -q "$id"
    local resumed=$?
    "$E2B" sandbox kill "$id"
    return $resumed
}

build_template() {
    cd "$HOME" && printf 'FROM base\nENV BUILT=yes\n' > e2b.Dockerfile && "$E2B" template create page-cli \
        && "$E2B" template list | grep -q page-cli && "$E2B" template delete --yes page-cli
}

E2B=$(realpath "$E2B")
example "Create and list sandboxes" create_and_list
example "Connect to a sandbox" connect
example "Execute commands in a sandbox" execute
example "Shut down running sandboxes" shut_down
example "Pause and resume" pause_and_resume
example "Build, list and delete a template" build_template
exit $failed
