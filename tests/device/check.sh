#!/usr/bin/env bash
# What only a GPU can show, in under ten minutes: on a machine with an NVIDIA driver, from the repository's root,
#
#   bash tests/device/check.sh [OUT]
#
# Builds the release binary, watches the real driver for four minutes while a process leaks on GPU 0, and compares:
# memory with nvidia-smi to the MiB, the leak with what was injected, and what NVML costs. Needs Rust, gcc and
# Python 3; no CUDA toolkit. OUT (default target/device) receives the status, the daemon's log and the figures.
# Exits 0 when all holds, 1 when not, 2 when it could not be tried.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${1:-target/device}
mkdir -p "$out"
command -v nvidia-smi > /dev/null || { echo "no nvidia-smi: this machine has no NVIDIA driver" >&2; exit 2; }

cargo build --release
binary=target/release/ebbtide
world=$(mktemp -d)
export EBBTIDE_SOCKET=$world/ebbtide.sock
"$binary" daemon --set "store.path=$world/ebbtide.db" 2> "$out/daemon.log" &
daemon=$!
trap 'kill $daemon 2> /dev/null || true; wait $daemon 2> /dev/null || true; rm -rf "$world"' EXIT

for _ in $(seq 100); do
    [ -S "$EBBTIDE_SOCKET" ] && break
    kill -0 $daemon 2> /dev/null || { cat "$out/daemon.log" >&2; exit 2; }
    read -rt 0.1 <> <(:) || true
done

python3 tests/device/compare.py --binary "$binary" --out "$out"
