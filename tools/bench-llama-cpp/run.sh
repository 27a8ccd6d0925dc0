#!/bin/sh
# Runs llama.cpp and our forward pass on one thread in turn, several times, and prints the ratios:
#
#   tools/bench-llama-cpp/run.sh SmolLM2-135M-Instruct.Q4_1.gguf [TIMES]
#
# llama.cpp comes as the library that node-llama-cpp 3.21.1 ships (npm); its headers from the bundle in the same
# package. Rivals are the file as it is and the file as Q8_0, which llama.cpp computes faster. Ours is
# `cargo bench --bench tokens` with the same file. A ratio is of runs of the same minute; printed is the best rate of
# each and the lowest and highest ratio. Exits with 1 where one is below 1. Needs npm, git, gcc.
set -eu
version=3.21.1
model=$(realpath "${1:?the SmolLM2 GGUF file is missing}")
times=${2:-3}
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
    [ -d source ] || git -c init.defaultBranch=main clone -q -c advice.detachedHead=false package/llama/gitRelease.bundle source
    gcc -O2 -Wall -Isource/include -Isource/ggml/include "$here/bench.c" -o bench \
        binaries/libllama.v*.so binaries/libggml.v*.so binaries/libggml-base.so \
        -Wl,-rpath,"$work/binaries"
fi
export LD_LIBRARY_PATH="$work/binaries" EBBTIDE_SMOLLM2="$model"
cargo bench -q --manifest-path "$root/Cargo.toml" -p ebbtide-engine --bench tokens --no-run >&2
if [ ! -e q8_0.gguf ]; then
    ./bench "$work/binaries" "$model" q8_0.part >/dev/null
    mv q8_0.part q8_0.gguf
fi

# The first number behind the colon, of the lines on a prompt of 512 tokens and on what follows it.
rates() { sed -n 's/^\(prompt of 512\|decode after it\): *\([0-9.]*\).*/\2/p' | head -n 2 | xargs; }

for run in $(seq "$times"); do
    echo "file $(./bench "$work/binaries" "$model" | rates)"
    echo "q8_0 $(./bench "$work/binaries" q8_0.gguf | rates)"
    # Limits of its own are not looked at here.
    echo "ours $( (cargo bench -q --manifest-path "$root/Cargo.toml" -p ebbtide-engine --bench tokens || true) | rates)"
    echo "run $run of $times" >&2
done >rates.txt
awk '
    function most(a, b) { return a > b ? a : b }
    { for (i = 2; i <= 3; i++) { now[$1, i] = $i; best[$1, i] = most(best[$1, i], $i) } }
    $1 == "ours" {
        for (i = 2; i <= 3; i++) for (rival in rivals) {
            ratio = now["ours", i] / now[rival, i]
            if (!((rival, i) in low) || ratio < low[rival, i]) low[rival, i] = ratio
            high[rival, i] = most(high[rival, i], ratio)
            if (ratio < 1) missed = 1
        }
    }
    BEGIN { rivals["file"]; rivals["q8_0"]; what[2] = "prefill"; what[3] = "decode" }
    END {
        printf "%-8s %8s %27s %27s %8s\n", "tokens/s", "ebbtide", "llama.cpp, the file", "llama.cpp, Q8_0", "wanted"
        for (i = 2; i <= 3; i++) {
            printf "%-8s %8.0f", what[i], best["ours", i]
            for (n = 1; n <= 2; n++) {
                rival = n == 1 ? "file" : "q8_0"
                printf " %11.0f %6.2f to %4.2fx", best[rival, i], low[rival, i], high[rival, i]
            }
            printf " %8s\n", ">= 1.0x"
        }
        exit missed
    }' rates.txt
