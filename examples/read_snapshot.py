"""Reads a kvtide snapshot, checks every checksum and prints its tensors. Written from docs/snapshot_format.md.

    python examples/read_snapshot.py FILE [TENSOR]     TENSOR: its numbers, too

Standard library only; numpy, where it is there, makes arrays of the numbers.
"""

import hashlib
import json
import struct
import sys

CHUNK = 1 << 20
TABLE = []
for crc in range(256):
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)  # Castagnoli, reflected
    TABLE.append(crc)


def crc32c(data):
    crc, table = 0xFFFFFFFF, TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def check(fine, what):
    if not fine:
        sys.exit(f"not a sound snapshot: {what}")


def read(path):
    """The header as a dict, and the bytes of the payload."""
    with open(path, "rb") as file:
        data = file.read()
    check(len(data) >= 72 and data[:8] == b"KVTIDE\0\1" and data[-8:] == b"KVTIDEND", "its magic is missing")
    check(struct.unpack_from("<Q", data, len(data) - 16)[0] == len(data), "its length is not what it says")
    version, header_crc, length = struct.unpack_from("<IIQ", data, 8)
    check(version == 1, f"version {version} is not 1")
    check(length <= len(data) - 72 and crc32c(data[24 : 24 + length]) == header_crc, "its header is damaged")
    header = json.loads(data[24 : 24 + length])
    start = (24 + length + 63) // 64 * 64
    end = start + header["payload_bytes"]
    count = (header["payload_bytes"] + CHUNK - 1) // CHUNK
    check(end + 4 * count + 48 == len(data), "its parts do not fill it")
    sums = data[end : end + 4 * count]
    digest = hashlib.sha256(data[:start] + sums).digest()
    check(digest == data[-48:-16], "its digest does not match")
    for i, expected in enumerate(struct.unpack(f"<{count}I", sums)):
        check(crc32c(data[start + i * CHUNK : min(start + (i + 1) * CHUNK, end)]) == expected, f"chunk {i} is damaged")
    return header, data[start:end]


def numbers(tensor, payload):
    """The tensor's elements as floats, flat."""
    data = payload[tensor["offset"] : tensor["offset"] + tensor["bytes"]]
    if tensor["dtype"] == "q8_0":  # blocks of a scale and 32 signed bytes
        blocks = struct.iter_unpack("<e32b", data)
        return [scale * q for scale, *quants in blocks for q in quants]
    code = {"f32": "f", "f16": "e", "i32": "i"}[tensor["dtype"]]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    head, body = read(sys.argv[1])
    print(f"{head['identity']['architecture']}, position {head['position']}, {len(head['tokens'])} tokens, all checksums fit")
    for t in head["tensors"]:
        print(f"{t['name']:14} {t['dtype']:5} {str(t['shape']):20} first {t['first']}, {t['bytes']} bytes")
        if sys.argv[2:] == [t["name"]]:
            values = numbers(t, body)
            try:
                import numpy

                values = numpy.array(values, dtype=numpy.float32).reshape(t["shape"])
            except ImportError:
                pass
            print(values)
