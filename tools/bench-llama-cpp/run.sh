#!/bin/sh
# Runs llama.cpp and our forward pass on one core in the same minute and prints the ratio:
#
#   tools/bench-llama-cpp/run.sh SmolLM2-135M-Instruct.Q4_1.gguf
#
# llama.cpp comes as the library that node-llama-cpp 3.21.1 ships (npm); its headers from the bundle in the same
# package. Rivals are the file as it is and the file as Q8_0, which llama.cpp computes faster. Ours is
# `cargo bench --bench tokens` with the same file. Exits with 1 where a ratio is below 1. Needs npm, git, gcc.
set -eu
version=3.21.1
model=$(realpath "${1:?the SmolLM2 GGUF file is missing}")
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
work="$root/target/bench-llama-cpp"
mkdir -p "$work"
cd "$work"
if [ ! -x bench ]; then
    npm pack --silent "@node-llama-cpp/linux-x64@$version" "node-llama-cpp@$version" >&2
    mkdir -p binaries package
    tar xzf "node-llama-cpp-linux-x64-$version.tgz" -C binaries --strip-components 3
    tar xzf "node-llama-cpp-$version.tgz" -C package --strip-components 1 package/llama/gitRelease.bundle
    [ -d source ] || git clone -q -c advice.detachedHead=false package/llama/gitRelease.bundle source
    gcc -O2 -Wall -Isource/include -Isource/ggml/include "$here/bench.c" -o bench \
        binaries/libllama.v*.so binaries/libggml.v*.so binaries/libggml-base.so \
        -Wl,-rpath,"$work/binaries"
fi
export LD_LIBRARY_PATH="$work/binaries" EBBTIDE_SMOLLM2="$model"
cargo bench -q --manifest-path "$root/Cargo.toml" -p ebbtide-engine --bench tokens --no-run >&2
./bench "$work/binaries" "$model" >as-it-is.txt
./bench "$work/binaries" "$model" "$work/q8_0.gguf" >q8_0.txt
cargo bench -q --manifest-path "$root/Cargo.toml" -p ebbtide-engine --bench tokens >ours.txt || true
awk '
    # The first number behind the colon of a line.
    { sub(/.*: */, ""); value = $1 + 0 }
    FILENAME == "as-it-is.txt" { file[FNR] = value; next }
    FILENAME == "q8_0.txt" { q8[FNR] = value; next }
    FNR == 2 || FNR == 3 { ours[FNR - 1] = value }
    END {
        what[1] = "prefill"; what[2] = "decode"
        printf "%-8s %10s %22s %22s %8s\n", "tokens/s", "ebbtide", "llama.cpp, the file", "llama.cpp, Q8_0", "wanted"
        for (i = 1; i <= 2; i++) {
            a = ours[i] / file[i]; b = ours[i] / q8[i]
            printf "%-8s %10.0f %14.0f %6.2fx %14.0f %6.2fx %8s\n", what[i], ours[i], file[i], a, q8[i], b, ">= 1.0x"
            if (a < 1 || b < 1) missed = 1
        }
        exit missed
    }' as-it-is.txt q8_0.txt ours.txt
