# Sourced by the scripts beside it: stands in the repository root, with an environment that has what they need.
# VENV names the environment (default .venv, made when absent), PYTHON what makes it (default python3).

set -euo pipefail

export VENV=${VENV:-.venv}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export PIP_DISABLE_PIP_VERSION_CHECK=1

# environment: makes it when absent.
environment() {
    local python=${PYTHON:-python3}
    [[ ! -x $VENV/bin/python ]] || return 0
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "$python is no Python 3.11 or newer: set PYTHON to one" >&2
        exit 2
    fi
    "$python" -m venv "$VENV"
}

# want EXTRA [PIP-OPTION...]: the package, editable, with that extra.
# A mark in the environment keeps a second call from asking the package index again.
want() {
    local extra=$1 mark state
    shift
    environment
    mark=$VENV/.installed-$extra
    state="$root $* $(cksum < pyproject.toml)"
    if [[ ! -f $mark || $(< "$mark") != "$state" ]]; then
        echo "installing sottovoce[$extra] into $VENV" >&2
        "$VENV/bin/python" -m pip install --quiet "$@" --editable ".[$extra]"
        echo "$state" > "$mark"
    fi
}
