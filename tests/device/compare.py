#!/usr/bin/env python3
"""Compares a running ebbtide daemon with nvidia-smi and with a leak injected on GPU 0; see check.sh."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

LEAK = pathlib.Path(__file__).with_name("leak.py")
MIB = 1 << 20
RATE_MIB_PER_MIN = 240
# A tick and a list may pass between our look and nvidia-smi's, in which other tenants move.
TRIES = 10
LEAK_DEADLINE_S = 420
RATE_TOLERANCE = 0.20


def status(binary):
    answer = subprocess.run([binary, "status", "--json"], capture_output=True, text=True, check=False)
    return json.loads(answer.stdout) if answer.stdout else None


def smi(query):
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]


def wait_until(what, deadline_s, probe):
    """The first true answer of `probe`, which is asked once a second; None when there is none in time."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        answer = probe()
        if answer:
            return answer
        time.sleep(1)
    print(f"no {what} within {deadline_s} s")
    return None


def memory_agrees(binary):
    """Used memory of each GPU, to the MiB that nvidia-smi prints."""
    ours = {g["uuid"]: g["memory"]["used"] // MIB for g in status(binary)["gpus"] if g["memory"]}
    theirs = {uuid: int(used) for uuid, used in smi("--query-gpu=uuid,memory.used") if used.isdigit()}
    print(f"  ours {ours}\n  nvidia-smi {theirs}")
    return bool(theirs) and all(abs(ours.get(uuid, -1) - used) <= 1 for uuid, used in theirs.items())


def leak_of(binary, pid):
    for finding in status(binary)["findings"]:
        part = finding["series"]["part"]
        if finding["kind"] == "leak" and isinstance(part, dict) and part["process"]["pid"] == pid:
            return finding
    return None


def rate_of(finding):
    return finding["rate"]["rate"] * 60 / MIB


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--binary", required=True)
    arguments.add_argument("--out", required=True, type=pathlib.Path)
    options = arguments.parse_args()
    binary = os.path.abspath(options.binary)

    def read():
        now = status(binary)
        return now and any(g["memory"] for g in now["gpus"])

    if not wait_until("reading of a GPU", 60, read):
        return 2
    results = {}
    results["used memory as nvidia-smi shows it"] = any(memory_agrees(binary) for _ in range(TRIES))

    leak = subprocess.Popen([sys.executable, str(LEAK), str(RATE_MIB_PER_MIN)], stdin=subprocess.PIPE)
    found = wait_until("leak", LEAK_DEADLINE_S, lambda: leak_of(binary, leak.pid))
    final = status(binary)
    leak.stdin.close()
    leak.wait()
    results["the leak was found, with its process"] = found is not None
    if found:
        rate = rate_of(found)
        print(f"  injected {RATE_MIB_PER_MIN} MiB/min, named {rate:.1f}: {found['summary']}")
        results["its rate within 20 %"] = abs(rate / RATE_MIB_PER_MIN - 1) <= RATE_TOLERANCE

    probe = final["health"]["probe"]
    seconds = final["tick"]["at"] / 1000 - final["health"]["started_at"] / 1000
    print(
        f"  NVML: {probe['nvml_calls'] / seconds:.1f} calls a second, {probe['nvml_us'] / 1000 / seconds:.2f} ms a second,"
        f" {probe['nvml_us'] / max(probe['nvml_calls'], 1):.0f} us a call; daemon: {final['health']['rss_bytes'] / MIB:.1f} MiB"
        f" RSS, {final['health']['cpu_ms'] / seconds:.2f} ms CPU a second"
    )
    (options.out / "status.json").write_text(json.dumps(final, indent=2))
    for what, held in results.items():
        print(f"{'ok' if held else 'FAILED':>6}  {what}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
