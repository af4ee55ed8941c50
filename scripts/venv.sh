#!/bin/sh
# Make a virtual environment and install Ferrule into it, editable and pinned.
#
#     [PYTHON=python3] [CONSTRAINTS=constraints.txt] sh scripts/venv.sh DIRECTORY EXTRA[,EXTRA...] [PACKAGE...]
#
# With '' for the extras it installs the packages alone, without Ferrule; `-r FILE` is a package too.
#
# Debian's python3 refuses pip outside an environment (PEP 668) and may come without ensurepip, so
# that it cannot put a pip inside one either. Neither is needed: a pip of any environment can
# install into another one (`pip --python`). An empty CONSTRAINTS takes the newest versions.
set -eu

venv=$1
extras=$2
shift 2  # what is left is installed beside Ferrule
python=${PYTHON:-python3}
constraints=${CONSTRAINTS-constraints.txt}
export PIP_DISABLE_PIP_VERSION_CHECK=1

fail() {
    echo "ferrule: $1" >&2
    exit 2
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# Say where a pip is that can install into the environment; false if there is none.
find_pip() {
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        installer=inside
    elif "$python" -m pip --python "$venv/bin/python" --version >/dev/null 2>&1; then
        installer=outside
    elif "$venv/bin/python" -m ensurepip --default-pip >/dev/null 2>&1; then
        installer=inside
    else
        return 1
    fi
}

# Nothing but the distribution can help a python3 with neither pip nor ensurepip.
ask_debian() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "ferrule: $python has neither pip nor ensurepip; installing Debian's python3-pip" >&2
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
        --no-install-recommends python3-pip
}

install() {
    if [ "$installer" = inside ]; then
        "$venv/bin/python" -m pip install --quiet ${constraints:+--constraint "$constraints"} "$@"
    else
        "$python" -m pip --python "$venv/bin/python" install --quiet \
            ${constraints:+--constraint "$constraints"} "$@"
    fi
}

command -v "$python" >/dev/null ||
    fail "there is no $python; install Python 3.11 or newer, or say which: make PYTHON=/path/to/python"
new_enough "$python" ||
    fail "$("$python" --version) is too old; Ferrule needs 3.11 or newer: make PYTHON=/path/to/python"

# An environment whose Python has been removed or replaced by an older one is made anew.
if ! new_enough "$venv/bin/python"; then
    echo "ferrule: making $venv with $("$python" --version)" >&2
    "$python" -m venv --clear --without-pip "$venv"
fi
find_pip || { ask_debian && find_pip; } ||
    fail "$python has neither pip nor ensurepip; install one of them (on Debian: apt install python3-pip)"

if [ -z "$extras" ]; then
    install "$@"
    exit
fi
echo "ferrule: installing ferrule[$extras] into $venv" >&2
# First the build backend, then the project without an environment of its own for the build:
# that one would be filled with whatever version is newest, past the pins.
install 'hatchling>=1.27'
install --no-build-isolation --editable ".[$extras]" "$@"
