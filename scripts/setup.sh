#!/usr/bin/env bash
# Make .venv and install Lamarckian into it: scripts/setup.sh [base|dev]
#
#   PYTHON        the interpreter to use; found by itself where it is not given
#   TORCH_INDEX   an index URL that has the torch build you want; pip's own choice by default
#
# A second run continues where an interrupted one stopped. Whatever cannot work is said
# before anything is made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv LOG=.venv/setup.log
readonly EXTRA=${1:-base}
readonly MINIMUM=11 MAXIMUM=13 # of Python 3; pyproject.toml says the same

main() {
    local python
    check_torch_index
    python=$(choose_python)
    make_venv "$python"
    : >"$LOG"
    trap 'printf "\nInterrupted. Run the same command again to go on from here.\n" >&2; exit 130' INT TERM
    # Bundled pips are of every age; a known one makes the rest repeatable.
    pip install --constraint constraints.txt pip
    announce
    install_torch
    say "Installing Lamarckian (what pip says is in $LOG)"
    local target=.
    [[ $EXTRA == dev ]] && target=".[dev]"
    pip install --constraint constraints.txt --build-constraint constraints.txt --editable "$target"
    [[ $EXTRA == dev ]] && install_for_tests
    say "Installed in $VENV: try $VENV/bin/lamarck --help"
}

say() { printf '%s\n' "$*"; }

refuse() { # the reason and the remedy, one line each
    printf 'setup: %s\n' "$@" >&2
    exit 2
}

# --- Python ---------------------------------------------------------------------------

choose_python() {
    local candidate version without_venv=""
    if [[ -n ${PYTHON:-} ]]; then
        version=$(version_of "$PYTHON") ||
            refuse "PYTHON is $PYTHON, which does not run." "Give the path of a Python 3.$MINIMUM to 3.$MAXIMUM."
        in_range "$version" ||
            refuse "PYTHON is $PYTHON, which is Python $version; 3.$MINIMUM to 3.$MAXIMUM is needed." \
                "Give another one, for example: make setup PYTHON=python3.$MINIMUM"
        has_venv "$PYTHON" || refuse_without_venv "$PYTHON" "$version"
        printf '%s\n' "$PYTHON"
        return
    fi
    local seen=""
    for candidate in python3 python3.13 python3.12 python3.11; do
        version=$(version_of "$candidate") || continue
        if ! in_range "$version"; then
            seen+=" $candidate is $version;"
        elif has_venv "$candidate"; then
            printf '%s\n' "$candidate"
            return
        else
            : "${without_venv:=$candidate}"
        fi
    done
    [[ -z $without_venv ]] || refuse_without_venv "$without_venv" "$(version_of "$without_venv")"
    refuse "Python 3.$MINIMUM to 3.$MAXIMUM is needed and none was found.${seen:+ Seen:${seen%;}.}" \
        "Install one (Debian, Ubuntu: sudo apt install python3 python3-venv), or name one:" \
        "    make setup PYTHON=/path/to/python3.$MINIMUM"
}

version_of() { # 3.11; fails where the command does not run
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

in_range() {
    local major=${1%.*} minor=${1#*.}
    [[ $major == 3 ]] && ((minor >= MINIMUM && minor <= MAXIMUM))
}

has_venv() { # Debian splits these two off into a package of their own
    "$1" -c 'import venv, ensurepip' 2>/dev/null
}

refuse_without_venv() {
    local remedy="Install the venv module of Python $2, or name another interpreter with PYTHON=."
    if command -v apt-get >/dev/null; then
        remedy="Install it, then run the same command again:  sudo apt install python$2-venv"
    fi
    refuse "$1 is Python $2 without the venv module." "$remedy"
}

# --- .venv ----------------------------------------------------------------------------

make_venv() {
    local python=$1 wanted
    wanted=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [[ -e $VENV && ! -e $VENV/pyvenv.cfg && -n $(ls -A "$VENV") ]]; then
        refuse "$VENV exists and is not a virtual environment." "Move it away, then run the same command again."
    fi
    if "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        local present
        present=$(version_of "$VENV/bin/python")
        if [[ -z ${PYTHON:-} || $present == "$wanted" ]] && in_range "$present"; then
            return
        fi
        say "Making $VENV anew: it has Python $present, and Python $wanted is asked for"
    else
        say "Making $VENV with Python $wanted"
    fi
    trap 'rm -rf "$VENV"; exit 130' INT TERM
    if ! "$python" -m venv --clear "$VENV"; then
        rm -rf "$VENV"
        refuse "$python could not make $VENV (its own message is above)."
    fi
}

# --- packages -------------------------------------------------------------------------

# pip, with one line of progress in place of its many. On failure: the end of what it said.
pip() {
    local verb=$1
    shift
    if ! "$VENV/bin/python" -m pip "$verb" --no-input --disable-pip-version-check \
        "${PROGRESS[@]}" "$@" 2>&1 | "$VENV/bin/python" scripts/pip_progress.py "$LOG"; then
        { printf '\nThe installation failed. The end of %s:\n\n' "$LOG" && tail -n 20 "$LOG"; } >&2
        printf '\nIf the network failed, run the same command again: it goes on from here.\n' >&2
        [[ -z ${TORCH_INDEX:-} ]] || printf 'TORCH_INDEX is %s; does it have the pinned torch?\n' "$TORCH_INDEX" >&2
        exit 1
    fi
    PROGRESS=(--progress-bar raw) # the first call brings a pip that knows it
}
PROGRESS=(--progress-bar off)

check_torch_index() {
    case ${TORCH_INDEX:-} in
        "" | https://* | http://* | file://*) ;;
        *) refuse "TORCH_INDEX is $TORCH_INDEX, which is not a URL." \
            "For the CPU build: TORCH_INDEX=https://download.pytorch.org/whl/cpu" ;;
    esac
}

torch_index_changed() {
    [[ -n ${TORCH_INDEX:-} && $(cat "$VENV/torch-index" 2>/dev/null) != "$TORCH_INDEX" ]]
}

# What tests need besides Python packages; those that miss theirs are skipped.
install_for_tests() {
    install_for_hosts
    install_football
}

# A throw-away machine may be given whatever tests can use; nobody else's is.
throw_away() {
    [[ -n ${CI:-} && $EUID == 0 ]] && command -v apt-get >/dev/null
}

# Some tests make several hosts of namespaces (ip, tc), or reach this machine over SSH.
install_for_hosts() {
    local missing=()
    command -v ip >/dev/null && command -v tc >/dev/null || missing+=(iproute2)
    command -v sshd >/dev/null || [[ -x /usr/sbin/sshd ]] || missing+=(openssh-server)
    ((${#missing[@]})) || return 0
    if throw_away; then
        say "Installing ${missing[*]} for tests over several hosts"
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes \
            --no-install-recommends "${missing[@]}"; } >>"$LOG" 2>&1 || say "That failed ($LOG); they are skipped"
    else
        say "Tests over several hosts are skipped without: sudo apt install ${missing[*]}"
    fi
}

install_football() {
    local system=no
    throw_away && system=yes
    FOOTBALL_SYSTEM=$system scripts/install_football.sh "$VENV/bin/python" ||
        say "Without the engine, tests of football are skipped; make football tries again"
}

announce() {
    if "$VENV/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null &&
        ! torch_index_changed; then
        return
    fi
    local report=$VENV/torch-report.json
    say "Asking the package index which build of torch it has"
    pip install --dry-run --ignore-installed --no-deps --report "$report" \
        ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --constraint constraints.txt torch
    "$VENV/bin/python" scripts/torch_build.py "$report"
}

install_torch() { # from its own index; everything else comes from pip's usual one
    torch_index_changed || return 0
    say "Installing torch from $TORCH_INDEX"
    pip install --force-reinstall --no-deps --index-url "$TORCH_INDEX" --constraint constraints.txt torch
    printf '%s\n' "$TORCH_INDEX" >"$VENV/torch-index"
}

main
