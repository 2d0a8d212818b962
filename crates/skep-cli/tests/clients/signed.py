"""Loads a program of bare instructions with a signature, as Linux 6.18 takes it, and prints what comes back."""

import ctypes
import errno
import os
import struct
import sys

BPF_PROG_LOAD = 5
BPF_PROG_TYPE_XDP = 6
KEY_SPEC_SESSION_KEYRING = -3

libc = ctypes.CDLL(None, use_errno=True)
call = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
with open(sys.argv[1], "rb") as file:
    insns = ctypes.create_string_buffer(file.read())
licence = ctypes.create_string_buffer(b"GPL")
signature = None
if len(sys.argv) > 2:
    with open(sys.argv[2], "rb") as file:
        signature = ctypes.create_string_buffer(file.read())

attributes = bytearray(168)
count = (len(insns) - 1) // 8
struct.pack_into("=IIQQ", attributes, 0, BPF_PROG_TYPE_XDP, count, ctypes.addressof(insns), ctypes.addressof(licence))
if signature:
    struct.pack_into(
        "=QIi", attributes, 152, ctypes.addressof(signature), len(signature) - 1, KEY_SPEC_SESSION_KEYRING
    )
attributes = (ctypes.c_char * len(attributes)).from_buffer(attributes)
descriptor = libc.syscall(call, BPF_PROG_LOAD, attributes, len(attributes))
if descriptor >= 0:
    print("loaded")
else:
    print(errno.errorcode[ctypes.get_errno()])
