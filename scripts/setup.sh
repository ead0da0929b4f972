#!/usr/bin/env bash
# Makes .venv at the root of the repository: Python 3.11+, the locked dependencies, this package (editable),
# and .venv/java_home, which names a Java 17+ for Spark. Run it again at any time; it repairs what is there.
#
#   PYTHON=...     use this Python instead of searching for one
#   JAVA_HOME=...  use this Java, if it is 17 or newer
#
# What is missing is installed with apt-get when we are root on Debian or Ubuntu; otherwise we say what to type.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
STAMP=$VENV/.set-up
unset PYTHONPATH PYTHONHOME

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

can_apt() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    export DEBIAN_FRONTEND=noninteractive PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
    [ -n "${apt_updated:-}" ] || apt-get update -qq >/dev/null
    apt_updated=yes
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# --- Python ---------------------------------------------------------------------------------------------------

python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# Prints the first Python that is new enough.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13; do
        if python_is_new_enough "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

ensure_python() {
    if [ -n "${PYTHON:-}" ] && ! python_is_new_enough "$PYTHON"; then
        fail "PYTHON=$PYTHON is not a Python 3.11 or newer" "point PYTHON at one, or leave it unset"
    fi
    if ! python=$(find_python) && can_apt; then
        say "no Python 3.11 or newer found, installing python3"
        apt_install python3 python3-venv || true
        python=$(find_python) || true
    fi
    [ -n "$python" ] || fail "no Python 3.11 or newer found" \
        "install one (Debian 12+, Ubuntu 24.04+: sudo apt-get install python3 python3-venv)," \
        "or name one: PYTHON=/path/to/python3.11 make setup"

    has_venv "$python" && return
    local package
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if can_apt; then
        say "$python has no venv module, installing $package"
        apt_install "$package" || apt_install python3-venv || true
    fi
    has_venv "$python" || fail "$python has no venv module; type: sudo apt-get install $package"
}

# --- Java -----------------------------------------------------------------------------------------------------

# Prints the home of a Java executable if it is 17 or newer ("1.8.0_392" is 8, "17.0.15" is 17, "21-ea" is 21).
java_home_of() {
    local report major
    [ -x "$1" ] && report=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    major=$(sed -n 's/^.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*$/\2/p' <<<"$report" | head -n 1)
    [ "${major:-0}" -ge 17 ] || return 1
    sed -n 's/^ *java\.home = //p' <<<"$report" | head -n 1
}

find_java_home() {
    local java
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
        java_home_of "$java" && return
    done
    return 1
}

ensure_java() {
    if ! java_home=$(find_java_home) && can_apt; then
        say "no Java 17 or newer found, installing one"
        apt_install openjdk-17-jre-headless || apt_install default-jre-headless || true
        java_home=$(find_java_home) || true
    fi
    [ -n "$java_home" ] || fail "no Java 17 or newer found (looked at JAVA_HOME, PATH and /usr/lib/jvm)" \
        "type: sudo apt-get update && sudo apt-get install openjdk-17-jre-headless" \
        "or name one: JAVA_HOME=/path/to/java make setup"
}

# --- the environment ------------------------------------------------------------------------------------------

make_venv() {
    rm -f "$STAMP"
    if ! python_is_new_enough "$VENV/bin/python" || ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        say "making $VENV"
        "$python" -m venv --clear "$VENV"
    fi
    say "installing the locked packages (the first time this takes a few minutes: Spark alone is 400 MB)"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --use-pep517 -r requirements.lock
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
}

ensure_python
say "Python: $python ($("$python" -V 2>&1 | cut -d ' ' -f 2))"
ensure_java
say "Java:   $java_home"
make_venv
printf '%s\n' "$java_home" >"$VENV/java_home"
touch "$STAMP"
say "done"
