"""Compares what other people's tools read from the simulated driver with what ebbtide reports.

compare.py compare --library-dir DIR (--status FILE | --binary EBBTIDE --socket PATH) [--save FILE] [--nvidia-smi PATH]
compare.py read nvidia-ml-py|nvitop     prints what that library reads, as JSON; run by `compare`

DIR holds libnvidia-ml.so.1 and its scenario. With --nvidia-smi, that program is compared instead of the others. Run it with the Python that has the tools installed. Exits 0 when every
value agrees, 1 when one does not, 2 when a side could not be read.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

MIB = 1 << 20
# Seconds until a daemon that has just been started must have read every list; lists are read every 5 s at most.
PATIENCE = 30
# Unit in which a tool tells an amount: some print whole MiB, rounded down.
UNIT = {"nvidia-ml-py": 1, "nvitop": 1, "gpustat": MIB, "nvidia-smi": MIB}


class Unreadable(Exception):
    """One of the two sides could not be read."""


# A reading is {uuid: {"used": bytes or None, "processes": {pid: bytes or None}}}, with PIDs as JSON's strings.


def read_nvidia_ml_py():
    import pynvml as nvml

    def lists(device):
        for read in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            yield from read(device)

    nvml.nvmlInit()
    reading = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        try:
            used = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2).used
        except nvml.NVMLError_NotSupported:
            used = None
        processes = {}
        for process in lists(device):
            # A process may stand in both lists with the same memory.
            processes[process.pid] = max(processes.get(process.pid, 0), process.usedGpuMemory)
        reading[nvml.nvmlDeviceGetUUID(device)] = {"used": used, "processes": processes}
    nvml.nvmlShutdown()
    return reading


def read_nvitop():
    import nvitop

    def known(value):
        return value if isinstance(value, int) else None

    reading = {}
    for device in nvitop.Device.all():
        processes = {pid: known(process.gpu_memory()) for pid, process in device.processes().items()}
        reading[device.uuid()] = {"used": known(device.memory_used()), "processes": processes}
    return reading


def gpustat_reading(text):
    reading = {}
    for gpu in json.loads(text)["gpus"]:
        processes = {str(p["pid"]): amount(p["gpu_memory_usage"]) for p in gpu["processes"] or []}
        reading[gpu["uuid"]] = {"used": amount(gpu["memory.used"]), "processes": processes}
    return reading


def amount(mib):
    return mib * MIB if isinstance(mib, int) else None


def nvidia_smi_reading(text):
    def mib(element):
        words = element.text.split()
        return int(words[0]) * MIB if words[1:] == ["MiB"] else None

    reading = {}
    for gpu in xml.etree.ElementTree.fromstring(text).iter("gpu"):
        processes = {p.findtext("pid"): mib(p.find("used_memory")) for p in gpu.iter("process_info")}
        reading[gpu.findtext("uuid")] = {"used": mib(gpu.find("fb_memory_usage/used")), "processes": processes}
    return reading


def run_tools(library_dir, nvidia_smi):
    """Runs each tool as its users do: the loader finds the library by LD_LIBRARY_PATH."""
    python = pathlib.Path(sys.executable)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library_dir)}

    def output(*command):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise Unreadable(f"{' '.join(map(str, command))} exited with {done.returncode}:\n{done.stderr.strip()}")
        return done.stdout

    if nvidia_smi:
        return {"nvidia-smi": nvidia_smi_reading(output(nvidia_smi, "-q", "-x"))}
    # The screen of nvitop rounds to GiB; that it draws at all is checked, its values come from its library.
    output(python.with_name("nvitop"), "--once")
    return {
        "nvidia-ml-py": json.loads(output(python, __file__, "read", "nvidia-ml-py")),
        "nvitop": json.loads(output(python, __file__, "read", "nvitop")),
        "gpustat": gpustat_reading(output(python.with_name("gpustat"), "--json")),
    }


def status_of_daemon(binary, socket):
    """Asks until every GPU's memory and list have been read."""
    deadline = time.monotonic() + PATIENCE
    said = "it was not asked"
    while time.monotonic() < deadline:
        command = [binary, "status", "--json", "--socket", socket]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        try:
            status = json.loads(done.stdout)
            unread = [gpu["uuid"] for gpu in status["gpus"] if None in (gpu["processes"], gpu["memory"])]
            if status["gpus"] and not unread:
                return status
            said = f"it shows no memory or no processes for {', '.join(unread) or 'any GPU'}"
        except (ValueError, KeyError) as error:
            said = f"{done.stderr.strip() or done.stdout[:300]!r} (exit {done.returncode}, {error!r})"
        time.sleep(0.25)
    raise Unreadable(f"no whole status from the daemon within {PATIENCE} s: {said}")


def ebbtide_reading(status):
    reading = {}
    for gpu in status["gpus"]:
        processes = {str(entry["key"]["pid"]): entry["memory"] for entry in gpu["processes"]["entries"]}
        reading[gpu["uuid"]] = {
            "used": gpu["memory"]["used"],
            "processes": processes,
            # Where memory is the host's, NVML has no figure for the device: ours is the sum of the processes, nvitop's
            # what the host has in use, and the others show none.
            "unified": gpu["kind"] == "unified",
        }
    return reading


def rows(tool, theirs, ours):
    """One row for each value: GPU, what, theirs, ours, verdict."""
    unit = UNIT[tool]
    for uuid in sorted(set(theirs) | set(ours)):
        if uuid not in theirs or uuid not in ours:
            yield uuid, "the GPU itself", "there" if uuid in theirs else "-", "there" if uuid in ours else "-", "DIFFERS"
            continue
        mine = ours[uuid]
        used = theirs[uuid]["used"]
        if mine["unified"]:
            yield uuid, "used", used, mine["used"], "no figure"
        else:
            yield uuid, "used", used, mine["used"], agree(used, mine["used"], unit)
        for pid in sorted(set(theirs[uuid]["processes"]) | set(mine["processes"]), key=int):
            there, here = theirs[uuid]["processes"].get(pid), mine["processes"].get(pid)
            yield uuid, f"pid {pid}", there, here, agree(there, here, unit)


def agree(theirs, ours, unit):
    if theirs is None or ours is None:
        return "DIFFERS"
    return "same" if theirs // unit == ours // unit else "DIFFERS"


def compare(arguments):
    readings = run_tools(arguments.library_dir, arguments.nvidia_smi)
    if arguments.status:
        status = json.loads(pathlib.Path(arguments.status).read_text())
    else:
        status = status_of_daemon(arguments.binary, arguments.socket)
    if arguments.save:
        pathlib.Path(arguments.save).write_text(json.dumps(status, indent=2))
    ours = ebbtide_reading(status)
    differences = compared = 0
    print(f"{'tool':13} {'GPU':41} {'what':14} {'theirs':>14} {'ebbtide':>14}  verdict")
    for tool, theirs in readings.items():
        for uuid, what, there, here, verdict in rows(tool, theirs, ours):
            print(f"{tool:13} {uuid:41} {what:14} {there!s:>14} {here!s:>14}  {verdict}")
            compared += verdict == "same"
            differences += verdict == "DIFFERS"
    print(f"{compared} values agree, {differences} differ (gpustat and nvidia-smi to the MiB, the others to the byte)")
    return 0 if compared and not differences else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    modes = parser.add_subparsers(dest="mode", required=True)
    read = modes.add_parser("read")
    read.add_argument("tool", choices=["nvidia-ml-py", "nvitop"])
    against = modes.add_parser("compare")
    against.add_argument("--library-dir", type=pathlib.Path, required=True)
    against.add_argument("--status", help="a status that was already written")
    against.add_argument("--binary", help="the ebbtide to ask")
    against.add_argument("--socket", help="the socket of the daemon to ask")
    against.add_argument("--nvidia-smi", help="compare this program only")
    against.add_argument("--save", help="where to keep the status that was compared")
    arguments = parser.parse_args()
    if arguments.mode == "read":
        json.dump(read_nvitop() if arguments.tool == "nvitop" else read_nvidia_ml_py(), sys.stdout)
        return 0
    if not arguments.status and not (arguments.binary and arguments.socket):
        parser.error("either --status, or --binary and --socket")
    try:
        return compare(arguments)
    except Unreadable as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
