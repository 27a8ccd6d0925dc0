#!/usr/bin/env bash
# Do programs that other people wrote see in the simulated driver what `ebbtide status --json` reports?
#
#   tests/third_party/check.sh [--binary EBBTIDE] [--library LIBNVIDIA_ML.SO] [--venv DIR] [--status FILE]
#
# The binary defaults to target/debug/ebbtide and the library to the one that `cargo build -p fake-nvml` makes.
# The tools go into a Python environment at DIR (default target/third-party/venv), which is kept and used again.
# With --status, FILE receives the status that was compared, for a look afterwards.
#
# Exits 0 when every value agrees, 1 when one does not, 2 when it could not be tried.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
binary=$target/debug/ebbtide
library=
venv=$target/third-party/venv
status=

# nvidia-ml-py is what the other two read through; pinned, so that a red build is our doing.
tools=(gpustat==1.1.1 nvitop==1.7.2 nvidia-ml-py==13.615.71)

die() {
    echo "check.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1 needs a value; see the head of this file"
    case $1 in
        --binary) binary=$2 ;;
        --library) library=$2 ;;
        --venv) venv=$2 ;;
        --status) status=$2 ;;
        *) die "unknown option $1; see the head of this file" ;;
    esac
    shift 2
done

if [ -z "$library" ]; then
    (cd "$root" && cargo build --quiet --package fake-nvml) || die "cargo build -p fake-nvml failed"
    library=$target/debug/libnvidia_ml.so
fi
[ -x "$binary" ] || die "no binary at $binary: cargo build, or name it with --binary"
[ -f "$library" ] || die "no library at $library: cargo build -p fake-nvml, or name it with --library"

# Python 3's venv module is a package of its own on Debian (python3-venv).
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || die "cannot make a Python environment at $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${tools[@]}" \
    || die "cannot install ${tools[*]}: is the package index reachable?"

world=$(mktemp -d "${TMPDIR:-/tmp}/ebbtide-third-party.XXXXXX")
children=()

leave() {
    if [ ${#children[@]} -gt 0 ]; then
        kill "${children[@]}" 2>/dev/null || true
        wait "${children[@]}" 2>/dev/null || true
    fi
    rm -rf "$world"
}
trap leave EXIT

# The tools leave out processes that they cannot find, so these exist.
for _ in 1 2 3 4; do
    sleep 3600 &
    children+=($!)
done

cp "$library" "$world/libnvidia-ml.so.1"
# Odd amounts, so that rounding shows; one process in two lists; memory that nobody owns; a part without figures of
# its own, whose process holds less than this machine has.
cat > "$world/ebbtide-scenario.toml" <<SCENARIO
driver_version = "580.95.05"

[[gpus]]
uuid = "GPU-7b1dbb17-0000-4000-8000-000000000001"
pci_bus = 1
unattributed = { constant = 77000001 }
processes = [
    { pid = ${children[0]}, memory = { constant = 21474836481 } },
    { pid = ${children[1]}, kind = "compute-and-graphics", memory = { constant = 1572863999 } },
]

[[gpus]]
uuid = "GPU-7b1dbb17-0000-4000-8000-000000000002"
pci_bus = 2
processes = [{ pid = ${children[2]}, kind = "graphics", memory = { constant = 536870911 } }]

[[gpus]]
uuid = "GPU-7b1dbb17-0000-4000-8000-000000000003"
name = "NVIDIA GB10"
pci_bus = 3
unified = true
processes = [{ pid = ${children[3]}, memory = { constant = 1073741823 } }]
SCENARIO

: > "$world/empty.toml"
"$binary" daemon --config "$world/empty.toml" --set probe.source=nvml --set "probe.library=$world/libnvidia-ml.so.1" \
    --set "store.path=$world/history.db" --set "api.socket=$world/ebbtide.sock" > "$world/daemon.log" 2>&1 &
daemon=$!
children+=("$daemon")

verdict=0
"$venv/bin/python" "$here/compare.py" compare --library-dir "$world" --binary "$binary" --socket "$world/ebbtide.sock" \
    --save "$world/status.json" || verdict=$?
[ -z "$status" ] || cp "$world/status.json" "$status" 2>/dev/null || true
if [ "$verdict" -ne 0 ]; then
    echo "--- the daemon said:" >&2
    tail -n 40 "$world/daemon.log" >&2
fi

bash "$here/nvidia_smi.sh" "$world" || true
exit "$verdict"
