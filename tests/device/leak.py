#!/usr/bin/env python3
"""Holds 1 GiB of GPU 0's memory and leaks on top of it at RATE MiB a minute, until standard input ends.

Straight through the CUDA driver, so that no toolkit is needed: plain allocations, never freed.
"""

import ctypes
import select
import sys
import time

MIB = 1 << 20
# The driver hands out memory in 2 MiB pages, so a smaller step would come in jumps anyway.
STEP = 2 * MIB


def call(cuda, name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} failed with CUDA error {code}")


def main():
    rate = float(sys.argv[1]) * MIB / 60
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call(cuda, "cuInit", 0)
    call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call(cuda, "cuCtxSetCurrent", context)
    call(cuda, "cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(1024 * MIB))
    begun, leaked = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], STEP / rate)[0]:
        while leaked < (time.monotonic() - begun) * rate:
            call(cuda, "cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(STEP))
            leaked += STEP


if __name__ == "__main__":
    main()
