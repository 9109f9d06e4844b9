#!/usr/bin/env bash
# Install Lamarckian from this checkout into a folder of its own: docker/install.sh FOLDER
#
#   PYTHON        the interpreter to use; python3 by default
#   TORCH_INDEX   an index URL that has the torch build you want; pip's own choice by default
#   EXTRAS        of pyproject.toml; all by default
#   FOOTBALL      1: with the football engine, and as root with the system packages that it takes
#
# The images are made with it; it does the same on a machine without containers. FOLDER/bin/lamarck
# is what it leaves. A FOLDER that holds something else is refused before anything is made.
set -euo pipefail

readonly FOLDER=${1:-} PYTHON=${PYTHON:-python3} TORCH_INDEX=${TORCH_INDEX:-} EXTRAS=${EXTRAS:-all}
readonly FOOTBALL=${FOOTBALL:-}
readonly MINIMUM=11 MAXIMUM=13 # of Python 3; pyproject.toml says the same
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly SOURCE

main() {
    check
    "$PYTHON" -m venv "$FOLDER"
    trap 'printf "\nInterrupted. Run the same command again to go on from here.\n" >&2; exit 130' INT TERM
    pip install --constraint "$SOURCE/constraints.txt" pip
    if [[ -n $TORCH_INDEX ]]; then
        pip install --constraint "$SOURCE/constraints.txt" --no-deps --index-url "$TORCH_INDEX" torch
    fi
    pip install --constraint "$SOURCE/constraints.txt" --build-constraint "$SOURCE/constraints.txt" \
        "${SOURCE}[$EXTRAS]"
    [[ -z $FOOTBALL ]] || "$SOURCE/scripts/install_football.sh" "$FOLDER/bin/python"
    "$FOLDER/bin/lamarck" --version
    printf 'Installed. Put it into PATH: export PATH=%q:"$%s"\n' "$(cd "$FOLDER" && pwd)/bin" PATH
}

check() {
    local version
    [[ -n $FOLDER ]] || refuse "no folder is given." "For example: docker/install.sh /opt/lamarck"
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        refuse "PYTHON is $PYTHON, which does not run." "Give the path of a Python 3.$MINIMUM to 3.$MAXIMUM."
    [[ ${version%.*} == 3 && ${version#*.} -ge $MINIMUM && ${version#*.} -le $MAXIMUM ]] ||
        refuse "PYTHON is $PYTHON, which is Python $version; 3.$MINIMUM to 3.$MAXIMUM is needed." \
            "Give another one: PYTHON=python3.$MINIMUM docker/install.sh $FOLDER"
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        refuse "$PYTHON is without the venv module." "On Debian and Ubuntu: apt install python$version-venv"
    case $TORCH_INDEX in
        "" | https://* | http://* | file://*) ;;
        *) refuse "TORCH_INDEX is $TORCH_INDEX, which is not a URL." "Leave it out for pip's own choice." ;;
    esac
    if [[ -e $FOLDER && ! -e $FOLDER/pyvenv.cfg && -n $(ls -A "$FOLDER" 2>/dev/null || echo file) ]]; then
        refuse "$FOLDER exists and is not a virtual environment." "Give another folder, or move it away."
    fi
}

refuse() { # the reason and the remedy, one line each
    printf 'install: %s\n' "$@" >&2
    exit 2
}

pip() {
    "$FOLDER/bin/python" -m pip "$1" --no-input --disable-pip-version-check --quiet "${@:2}"
}

main
