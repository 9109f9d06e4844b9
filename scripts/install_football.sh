#!/usr/bin/env bash
# Install the football engine (Google Research Football) into a Python environment:
#
#   scripts/install_football.sh [PYTHON]           .venv/bin/python by default
#   scripts/install_football.sh --check [PYTHON]   says what an administrator must install, installs nothing
#   scripts/install_football.sh --libraries        only the system libraries that a built engine needs
#
#   FOOTBALL_CACHE    where the built engine is kept; ~/.cache/lamarckian/football by default
#   FOOTBALL_SYSTEM   no: install no system packages, even where it could; yes by default
#
# The engine is compiled once and kept as a wheel, so a second environment takes seconds. An
# interrupted compilation goes on where it stopped. Exit status: 0 installed, 1 something failed,
# 2 this Python will not do, 3 system packages are missing and may not be installed from here.
#
# shellcheck disable=SC2329 # need() and a trap call functions that it does not see called
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
readonly MINIMUM=11 MAXIMUM=13 # of Python 3; pyproject.toml says the same
readonly ENGINE=2.10.2
readonly ENGINE_SHA256=1b0fdcfa78b7fadc3730585ee7f0f412ba825c27e422b2b85ea0cf7ba57800b6
# Boost.Python must be built for the very Python that imports it. Distributions have it for their own
# Python alone; these wheels have it for each. Later ones lack Boost.System, which the engine asks for.
readonly BOOST=1.87.0.1
readonly CMAKE=3.31.10 NINJA=1.13.0 # 4 took away what the engine's build files were written for
readonly RECIPE=2                   # raise it when the same versions are to be built differently
readonly CPU_SECONDS=200            # that compiling took, all cores together
readonly RELEASE=$ENGINE+lamarckian.$RECIPE

PYTHON=.venv/bin/python
CACHE=${FOOTBALL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/lamarckian/football}

main() {
    case ${1:-} in
        --libraries)
            need libraries "the engine runs with"
            return
            ;;
        --check)
            if [[ -n ${2:-} ]]; then PYTHON=$2; else cd "$ROOT"; fi
            FOOTBALL_SYSTEM=no
            ;;
        -*) refuse "$1 is not an option." "Give a Python, or --libraries, or --check." ;;
        ?*) PYTHON=$1 ;;
        *) cd "$ROOT" ;;
    esac
    check_python
    if installed; then
        say "The football engine $RELEASE is installed."
        return
    fi
    local wheel
    wheel=$CACHE/$(platform)/gfootball-$RELEASE-$TAG.whl
    if [[ ${1:-} == --check ]]; then
        [[ -f $wheel ]] || need for_building "the engine is built with"
        need libraries "the engine runs with"
        say "The football engine can be installed: make football"
        return
    fi
    mkdir -p "$CACHE" || refuse "$CACHE cannot be made." "Name another folder: FOOTBALL_CACHE=/path make football"
    if [[ -f $wheel ]]; then
        need libraries "the engine runs with"
        say "Installing the football engine that was built before ($wheel)"
    else
        build "$wheel"
    fi
    pip install --no-deps --no-index --force-reinstall "$wheel"
    installed || fail "The engine was installed into $PYTHON and does not load:" "$(load 2>&1 | tail -n 1)"
    say "Installed. Try: lamarck train env=gfootball"
}

say() { printf '%s\n' "$*"; }

refuse() { # the reason and the remedy, one line each
    printf 'football: %s\n' "$@" >&2
    exit 2
}

fail() {
    printf 'football: %s\n' "$@" >&2
    exit 1
}

# --- Python ---------------------------------------------------------------------------

check_python() { # sets TAG, of the wheel
    local answer
    answer=$("$PYTHON" - 2>/dev/null <<'PYTHON'
import platform, sys, sysconfig
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print(platform.python_implementation() + free, *sys.version_info[:2], sysconfig.get_platform(), sep=" ")
PYTHON
    ) || refuse "$PYTHON does not run." "Run make setup first, or name a Python: scripts/install_football.sh /path/to/python"
    local kind major minor system
    read -r kind major minor system <<<"$answer"
    [[ $kind == CPython ]] || refuse "$PYTHON is $kind; the engine is for CPython with its lock."
    ((major == 3 && minor >= MINIMUM && minor <= MAXIMUM)) ||
        refuse "$PYTHON is Python $major.$minor; 3.$MINIMUM to 3.$MAXIMUM is needed."
    case $system in
        linux-x86_64 | linux-aarch64) ;;
        *) refuse "This is $system; the engine is built here for Linux on x86_64 and aarch64 alone." ;;
    esac
    "$PYTHON" -m pip --version >/dev/null 2>&1 ||
        refuse "$PYTHON is without pip." "Bring it: $PYTHON -m ensurepip"
    PYTHON=$(command -v "$PYTHON")
    [[ $PYTHON == /* ]] || PYTHON=$PWD/$PYTHON
    TAG=cp$major$minor-cp$major$minor-${system//-/_}
    BOOST_PYTHON=python$major$minor
}

load() {
    "$PYTHON" -c "
import importlib.metadata as m
assert m.version('gfootball') == '$RELEASE', 'another version: ' + m.version('gfootball')
import gfootball_engine
gfootball_engine.GameEnv"
}

installed() { load >/dev/null 2>&1; }

platform() { # what a built engine depends on, besides Python
    local name=linux
    # shellcheck source=/dev/null
    [[ ! -r /etc/os-release ]] || name=$(. /etc/os-release && printf '%s-%s' "${ID:-linux}" "${VERSION_ID:-rolling}")
    printf '%s-boost%s\n' "$name" "$BOOST"
}

# pip, with its many lines in a file.
pip() {
    local log=$CACHE/pip.log
    "$PYTHON" -m pip "$1" --no-input --disable-pip-version-check "${@:2}" >"$log" 2>&1 && return
    { printf '\npip failed. The end of %s:\n\n' "$log" && tail -n 20 "$log"; } >&2
    printf '\nIf the network failed, run the same command again: it goes on from here.\n' >&2
    exit 1
}

# --- system packages ------------------------------------------------------------------

# What is there is found out by using it, so other distributions and hand-made installations serve as
# well; the names are those of Debian and Ubuntu.
missing_libraries() {
    local python=$PYTHON
    "$python" -c "" 2>/dev/null || python=python3
    "$python" - <<'PYTHON'
import ctypes
import glob

needed = {
    "libSDL2-2.0.so.0": "libsdl2-2.0-0",
    "libSDL2_ttf-2.0.so.0": "libsdl2-ttf-2.0-0",
    "libSDL2_gfx-1.0.so.0": "libsdl2-gfx-1.0-0",
    "libEGL.so.1": "libegl1",
}
for library, package in needed.items():
    try:
        ctypes.CDLL(library)
    except OSError:
        print(package)
# Who draws: a graphics card's driver, or Mesa on the processor.
vendors = glob.glob("/usr/share/glvnd/egl_vendor.d/*.json") + glob.glob("/etc/glvnd/egl_vendor.d/*.json")
if not vendors:
    print("libegl-mesa0")
if all("mesa" in vendor for vendor in vendors):
    places = ("dri/swrast_dri.so", "*/dri/swrast_dri.so", "libgallium*.so", "*/libgallium*.so")
    if not any(glob.glob(f"/usr/lib*/{place}") for place in places):
        print("libgl1-mesa-dri")
PYTHON
}

missing_for_building() {
    missing_libraries
    command -v g++ >/dev/null || printf 'g++\n'
    local header library package
    while read -r header library package; do
        g++ -x c++ - -shared -fPIC -o /dev/null "-l$library" <<<"#include <$header>" 2>/dev/null ||
            printf '%s\n' "$package"
    done <<'LIST'
SDL2/SDL.h SDL2 libsdl2-dev
SDL2/SDL_image.h SDL2_image libsdl2-image-dev
SDL2/SDL_ttf.h SDL2_ttf libsdl2-ttf-dev
SDL2/SDL2_gfxPrimitives.h SDL2_gfx libsdl2-gfx-dev
EGL/egl.h EGL libegl-dev
GL/gl.h OpenGL libopengl-dev
GL/gl.h GL libgl-dev
LIST
    "$PYTHON" -c "import os, sysconfig as s; open(os.path.join(s.get_path('include'), 'Python.h'))" 2>/dev/null ||
        "$PYTHON" -c "import sys; print('python%d.%d-dev' % sys.version_info[:2])"
}

need() { # what to look for, and what for
    local packages
    mapfile -t packages < <("missing_$1")
    ((${#packages[@]})) || return 0
    local command=(apt-get install --yes --no-install-recommends "${packages[@]}") root=()
    ((EUID == 0)) || root=(sudo)
    if ! may_install; then
        printf 'football: %s\n' "System packages that $2 are missing." \
            "Install them (their names are those of Debian and Ubuntu), then run make football:" \
            "    ${root[*]:+${root[*]} }${command[*]}" >&2
        exit 3
    fi
    say "Installing system packages that $2: ${packages[*]}"
    local log
    log=$(mktemp)
    if ! { "${root[@]}" apt-get update &&
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive "${command[@]}"; } </dev/null >"$log" 2>&1; then
        { printf '\napt-get failed. The end of what it said:\n\n' && tail -n 20 "$log"; } >&2
        rm -f "$log"
        printf '\nInstall them, then run make football:\n    %s\n' "${root[*]:+${root[*]} }${command[*]}" >&2
        exit 3
    fi
    rm -f "$log"
    mapfile -t packages < <("missing_$1")
    ((${#packages[@]} == 0)) || fail "${packages[*]} were installed and still cannot be used."
}

may_install() {
    [[ ${FOOTBALL_SYSTEM:-} != no ]] && command -v apt-get >/dev/null || return 1
    ((EUID == 0)) || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# --- the engine -----------------------------------------------------------------------

build() { # the wheel to leave
    local wheel=$1 work
    need for_building "the engine is built with"
    work=$CACHE/building-$(platform)-$RELEASE-$TAG
    mkdir -p "$work"
    exec 9>"$work/lock"
    if command -v flock >/dev/null && ! flock --nonblock 9; then
        say "Another process builds it already; waiting for that one"
        flock 9
        [[ ! -f $wheel ]] || return 0
        mkdir -p "$work" # the other one removed it
    fi
    trap 'stop_compiling; printf "\nInterrupted. Run the same command again to go on from here.\n" >&2; exit 130' INT TERM
    announce "$work"
    fetch "$work"
    compile "$work"
    pack "$work" "$wheel"
    trap - INT TERM
    rm -rf "$work"
}

cores() { # as many as there is memory for: a compiler takes up to 700 MB
    local cores memory
    cores=$(nproc 2>/dev/null || echo 1)
    memory=$(awk '/^MemAvailable/ { print int($2 / 700000) }' /proc/meminfo 2>/dev/null || echo 1)
    ((memory < cores)) && cores=$memory
    ((cores > 0)) || cores=1
    printf '%s\n' "$cores"
}

announce() {
    local cores minutes
    cores=$(cores)
    minutes=$(((CPU_SECONDS / cores + 59) / 60))
    if [[ -e $1/build/build.ninja ]]; then
        say "Going on with the football engine where the last run stopped"
    else
        say "Building the football engine: 80 MB to download, then about $minutes min to compile on $cores cores." \
            "It is kept in $CACHE (10 MB), so it is built once."
    fi
}

# Each step leaves its result under another name first, so half of one is never taken for the whole.
fetch() {
    local work=$1
    if [[ ! -e $work/source ]]; then
        say "Fetching gfootball $ENGINE"
        rm -rf "$work/source.part" "$work/archive"
        printf 'gfootball==%s --hash=sha256:%s\n' "$ENGINE" "$ENGINE_SHA256" >"$work/requirements.txt"
        # It makes the package's metadata on the way, which takes setuptools and nothing else.
        pip download --no-deps --no-binary gfootball --require-hashes --requirement "$work/requirements.txt" \
            --dest "$work/archive"
        mkdir "$work/source.part"
        tar -xzf "$work/archive/gfootball-$ENGINE.tar.gz" -C "$work/source.part" --strip-components=1 ||
            fail "gfootball $ENGINE could not be unpacked in $work."
        "$PYTHON" "$ROOT/scripts/football_wheel.py" prepare "$work/source.part"
        mv "$work/source.part" "$work/source"
    fi
    if [[ ! -e $work/tools ]]; then
        say "Fetching Boost and build tools"
        rm -rf "$work/tools.part"
        pip install --no-deps --only-binary :all: --target "$work/tools.part" \
            "cmeel-boost==$BOOST" "cmake==$CMAKE" "ninja==$NINJA"
        mv "$work/tools.part" "$work/tools"
    fi
}

COMPILER=""
stop_compiling() {
    [[ -z $COMPILER ]] || { kill "$COMPILER" && wait "$COMPILER"; } 2>/dev/null || true
}

compile() {
    local work=$1 tools=$1/tools log=$1/compile.log started=$SECONDS
    local ninja=$tools/ninja/data/bin/ninja
    [[ -x $ninja ]] || ninja=$tools/bin/ninja
    # Compiled as one whole, a step takes two thirds of the time that the package's own build needs, and
    # gives the same numbers (no flag here lets the compiler round differently). Asserts stay in: the
    # engine checks its input with them.
    local fast="-O3 -g0 -w -flto -fno-semantic-interposition -ftls-model=initial-exec -fno-math-errno"
    "$tools/cmake/data/bin/cmake" -S "$work/source/third_party/gfootball_engine" -B "$work/build" -G Ninja \
        -DCMAKE_MAKE_PROGRAM="$ninja" -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ \
        -DCMAKE_AR="$(command -v gcc-ar || command -v ar)" \
        -DCMAKE_RANLIB="$(command -v gcc-ranlib || command -v ranlib)" \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="$fast" -DCMAKE_C_FLAGS_RELEASE="$fast" \
        -DCMAKE_CXX_FLAGS="-DBOOST_ALLOW_DEPRECATED_HEADERS -DBOOST_BIND_GLOBAL_PLACEHOLDERS" \
        -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=6 \
        -DCMAKE_SHARED_LINKER_FLAGS="-Wl,--as-needed -flto=$(cores)" \
        -DPython_EXECUTABLE="$PYTHON" -DCMAKE_PREFIX_PATH="$tools/cmeel.prefix" \
        -DCMAKE_INSTALL_RPATH="\$ORIGIN" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON >"$log" 2>&1 || compile_failed "$log"
    "$ninja" -C "$work/build" -j "$(cores)" >>"$log" 2>&1 &
    COMPILER=$!
    while kill -0 "$COMPILER" 2>/dev/null; do
        show_progress "$log" $((SECONDS - started))
        sleep 0.5
    done
    [[ ! -t 1 ]] || printf '\r\033[K'
    wait "$COMPILER" || compile_failed "$log"
    COMPILER=""
    say "Compiled in $(clock $((SECONDS - started)))"
}

show_progress() { # of ninja's [3/113]
    [[ -t 1 ]] || return 0
    local step compiled all
    step=$(tail -c 20000 "$1" | grep -oE '^\[[0-9]+/[0-9]+\]' | tail -n 1 || true)
    IFS='[/]' read -r _ compiled all _ <<<"${step:-[0/1]}"
    printf '\r\033[K  compiling: %d %%, %s' $((100 * compiled / all)) "$(clock "$2")"
}

clock() { printf '%d:%02d\n' $(($1 / 60)) $(($1 % 60)); }

compile_failed() {
    { printf '\nCompiling failed. The end of %s:\n\n' "$1" && grep -E 'rror' "$1" | head -n 5 && tail -n 15 "$1"; } >&2
    exit 1
}

pack() {
    mkdir -p "$(dirname "$2")"
    local work=$1 wheel=$2 boost=$1/tools/cmeel.prefix/lib engine=$1/build/libgame.so libraries
    mapfile -t libraries < <(LD_LIBRARY_PATH=$boost ldd "$engine" | awk -v folder="$boost/" 'index($3, folder) == 1 { print $3 }')
    [[ " ${libraries[*]} " == *"libboost_$BOOST_PYTHON."* ]] ||
        fail "The engine was linked to another Boost.Python than its own: $(ldd "$engine" | grep boost_python)"
    "$PYTHON" "$ROOT/scripts/football_wheel.py" pack "$work/source" "$engine" "$RELEASE" "$TAG" "$wheel.part" \
        "${libraries[@]}"
    try "$work" "$wheel.part"
    mv "$wheel.part" "$wheel"
}

try() { # what enters the cache has played
    local work=$1 wheel=$2
    rm -rf "$work/try"
    "$PYTHON" -m zipfile -e "$wheel" "$work/try"
    "$PYTHON" "$ROOT/scripts/football_wheel.py" play "$work/try" >"$work/try.log" 2>&1 && return
    tail -n 20 "$work/try.log" >&2
    rm -f "$wheel"
    fail "The engine was built and does not play (its last words are above)."
}

# In one line, which is read at once: what is edited while it runs (a git pull) is not run half.
{ main "$@"; exit; }
