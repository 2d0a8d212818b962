# SPDX-License-Identifier: MIT OR Apache-2.0
"""Creates a map, loads a program that counts in it, runs the program, and reads the map."""

import ctypes
import os
import platform
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, PROG_LOAD, TEST_RUN = 0, 1, 2, 5, 10
ARRAY, XDP = 2, 6


def bpf(command, attributes):
    """The result, and the attributes afterwards."""
    memory = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = LIBC.syscall(SYS_BPF, command, memory, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result, memory.raw


def insn(code, dst=0, src=0, offset=0, imm=0):
    return struct.pack("<BBhi", code, src << 4 | dst, offset, imm)


def load(insns):
    """Loads an XDP program; the log is part of the error."""
    program, licence = ctypes.create_string_buffer(insns), ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(65536)
    where = ctypes.addressof
    attributes = struct.pack(
        "<IIQQIIQ", XDP, len(insns) // 8, where(program), where(licence), 1, len(log), where(log)
    )
    try:
        return bpf(PROG_LOAD, attributes)[0]
    except OSError as error:
        raise OSError(error.errno, log.value.decode()) from error


def main():
    counts, _ = bpf(MAP_CREATE, struct.pack("<IIIII", ARRAY, 4, 8, 2, 0))
    key, value = ctypes.c_uint32(1), ctypes.c_uint64(40)
    element = struct.pack("<IxxxxQQQ", counts, ctypes.addressof(key), ctypes.addressof(value), 0)
    bpf(MAP_UPDATE, element)

    program = load(
        insn(0xB7, 2, imm=1)  # r2 = 1
        + insn(0x63, 10, 2, -4)  # *(u32 *)(r10 - 4) = r2
        + insn(0xBF, 2, 10)  # r2 = r10
        + insn(0x07, 2, imm=-4)  # r2 += -4
        + insn(0x18, 1, 1, imm=counts)  # r1 = the map
        + insn(0)
        + insn(0x85, imm=1)  # call bpf_map_lookup_elem
        + insn(0x15, 0, offset=2)  # if r0 == 0 goto +2
        + insn(0xB7, 1, imm=1)  # r1 = 1
        + insn(0xDB, 0, 1)  # lock *(u64 *)(r0 + 0) += r1
        + insn(0xB7, 0, imm=2)  # r0 = XDP_PASS
        + insn(0x95)  # exit
    )
    packet = ctypes.create_string_buffer(64)
    run = struct.pack("<IIIIQQI", program, 0, 64, 0, ctypes.addressof(packet), 0, 2)
    verdict = struct.unpack_from("<I", bpf(TEST_RUN, run)[1], 4)[0]
    bpf(MAP_LOOKUP, element)
    print(f"verdict {verdict}, counted {value.value}")
    print(os.readlink(f"/proc/self/fd/{program}"))

    try:
        load(insn(0x95))
    except OSError as error:
        print(f"error {error.errno}: {error.strerror.splitlines()[-2]}")


main()
