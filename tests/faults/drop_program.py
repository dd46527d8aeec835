"""Attaches a program to an interface that drops one datagram of the test in three: `drop_program.py IF xdp|tc`.

Written in bytes, because there need be no compiler where it is used. It stays as long as the interface does."""

import ctypes, os, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    block = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = libc.syscall(321 if os.uname().machine == "x86_64" else 280, command, block, 128)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def instruction(code, to=0, source=0, distance=0, number=0):
    return struct.pack("<BBhi", code, to | source << 4, distance, number)


interface, kind = sys.argv[1:]
is_xdp = kind == "xdp"
data, end, type_, drop, go_on = (0, 4, 6, 1, 2) if is_xdp else (76, 80, 3, 2, -1)
code = [
    instruction(0x61, 2, 1, data),
    instruction(0x61, 3, 1, end),
    instruction(0xBF, 4, 2),
    instruction(0x07, 4, number=42),
    instruction(0x2D, 4, 3, 8),  # too short
    instruction(0x69, 5, 2, 12),
    instruction(0x55, 5, distance=6, number=socket.htons(0x0800)),
    instruction(0x69, 5, 2, 16),
    instruction(0x55, 5, distance=4, number=socket.htons(92)),  # 64 bytes of payload
    instruction(0x85, number=7),  # bpf_get_prandom_u32
    instruction(0x97, number=3),
    instruction(0x55, distance=1, number=0),
    instruction(0x05, distance=2),
    instruction(0xB7, number=go_on),
    instruction(0x95),
    instruction(0xB7, number=drop),
    instruction(0x95),
]
code = b"".join(code)
text = ctypes.create_string_buffer(code, len(code))
license_ = ctypes.create_string_buffer(b"GPL")
load = struct.pack("<IIQQ", type_, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license_))
program = bpf(5, load)
index = socket.if_nametoindex(interface)
if is_xdp:
    # RTM_SETLINK with IFLA_XDP { IFLA_XDP_FD, IFLA_XDP_FLAGS }, on socket buffers.
    inside = struct.pack("<HHi", 8, 1, program) + struct.pack("<HHI", 8, 3, 2)
    attribute = struct.pack("<HH", 4 + len(inside), 43 | 1 << 15) + inside
    body = struct.pack("<BxHiII", 0, 0, index, 0, 0) + attribute
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    netlink.send(struct.pack("<IHHII", 16 + len(body), 19, 5, 1, 0) + body)
    error = struct.unpack_from("<i", netlink.recv(4096), 16)[0]
    if error:
        raise OSError(-error, os.strerror(-error))
else:
    bpf(8, struct.pack("<III", index, program, 46))  # tcx, ingress
