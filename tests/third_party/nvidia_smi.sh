#!/usr/bin/env bash
# Tries NVIDIA's own nvidia-smi, from Debian's non-free component, against the simulated driver: does it agree with
# ebbtide, and what does it miss? An extra that never fails a build: the package may be out of reach, and it asks
# for internal calls that nobody documents.
#
#   tests/third_party/nvidia_smi.sh WORLD     a directory with libnvidia-ml.so.1, its scenario, and ebbtide's status
set -uo pipefail

world=${1:?a directory with libnvidia-ml.so.1, its scenario, and status.json}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ebbtide-nvidia-smi.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

skip() {
    echo "nvidia-smi: not tried, $*"
    exit 0
}

command -v apt-get > /dev/null && command -v dpkg > /dev/null || skip "this is no Debian"

# apt with lists and caches of its own: the system's sources stay as they are. The mirror and the keys are those of
# the system's first Debian source.
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$release" ] || skip "this Debian does not say its release"
mirror=$(grep -rhoE '(https?|mirror\+[a-z]+|file)[:/][^ ]*/debian/?( |$)' \
    /etc/apt/sources.list /etc/apt/sources.list.d 2> /dev/null | head -n 1 | tr -d ' ')
[ -n "$mirror" ] || skip "the system's sources name no Debian mirror"
mkdir -p "$scratch/lists/partial" "$scratch/cache/archives/partial" "$scratch/empty"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release non-free" > "$scratch/sources.list"
apt=(-o "Dir::Etc::SourceList=$scratch/sources.list" -o "Dir::Etc::SourceParts=$scratch/empty"
    -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/cache")
timeout 120 apt-get "${apt[@]}" update > "$scratch/log" 2>&1 || skip "the non-free component is out of reach: $(tail -n 1 "$scratch/log")"
(cd "$scratch" && timeout 120 apt-get "${apt[@]}" download nvidia-smi >> log 2>&1) || skip "there is no such package: $(tail -n 1 "$scratch/log")"
dpkg -x "$scratch"/nvidia-smi_*.deb "$scratch/root" || skip "the package cannot be unpacked"
smi=$(find "$scratch/root" -name nvidia-smi -type f -perm -u+x | head -n 1)
[ -n "$smi" ] || skip "the package holds no nvidia-smi"

# It refuses a library of another version, so the world is copied with the program's own.
version=$(dpkg-deb -f "$scratch"/nvidia-smi_*.deb Version | sed 's/-.*//')
mkdir "$scratch/world"
cp "$world/libnvidia-ml.so.1" "$scratch/world/"
sed "s/^driver_version = .*/driver_version = \"$version\"/" "$world/ebbtide-scenario.toml" > "$scratch/world/ebbtide-scenario.toml"

echo "--- nvidia-smi $version"
LD_LIBRARY_PATH=$scratch/world timeout 20 "$smi" 2>&1 | head -n 60
[ ! -f "$world/status.json" ] || python3 "$here/compare.py" compare --library-dir "$scratch/world" --status "$world/status.json" --nvidia-smi "$smi"
for arguments in "pmon -c 1" "dmon -c 1" "topo -m"; do
    # Unquoted on purpose: a list of arguments.
    said=$(LD_LIBRARY_PATH=$scratch/world timeout 20 "$smi" $arguments 2>&1) || echo "nvidia-smi $arguments fails: $(echo "$said" | grep -v '^$' | tail -n 1)"
done
# Calls that write, and those of vGPU hosts and of S-class units, are nothing that a monitor would miss.
wanted=$(strings -a "$smi" 2> /dev/null | grep -E '^nvml[A-Z][A-Za-z0-9_]+$' | grep -vE 'Set[A-Z]|Reset|Create|Destroy|Clear|Modify|Remove|Vgpu|nvmlUnit' | sort -u)
exported=$(nm -D --defined-only "$world/libnvidia-ml.so.1" 2> /dev/null | awk '{ print $3 }' | sort -u)
if [ -n "$wanted" ] && [ -n "$exported" ]; then
    missing=$(comm -23 <(echo "$wanted") <(echo "$exported"))
    echo "nvidia-smi names $(echo "$wanted" | wc -l) symbols that read; the simulated driver lacks $(echo "$missing" | grep -c .):"
    echo "$missing" | tr '\n' ' ' | fold -s -w 116
    echo
fi
exit 0
