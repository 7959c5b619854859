"""Writes version1.kv, a snapshot file, from the words of docs/snapshot_format.md and with nothing of kvtide.

    python3 make_version1.py version1.kv

The file in the repository stays as it is: later programs must go on reading it.
"""
import hashlib
import json
import struct
import sys

LAYERS = [
    {"kv_heads": 2, "head_dim": 32, "window": None},
    {"kv_heads": 1, "head_dim": 32, "window": 9},
]
RUNS = [[(0, 20), (25, 40), (45, 75)], [(55, 75)]]
MASK = (1 << 64) - 1


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def row(position: int, layer: int, head: int, key: bool) -> tuple[float, list[int]]:
    """The step and the quants of a row: the made-up numbers that tests/state/state_rows.h writes."""
    bits = (position * 0x9E3779B97F4A7C15 + (layer * 64 + head * 2 + key) * 0xC2B2AE3D27D4EB4F) & MASK
    step = 2.0 ** ((bits >> 61) - 1)
    quants = []
    for i in range(32):
        bits = (bits * 6364136223846793005 + 1442695040888963407) & MASK
        quants.append(127 if i == 0 else (bits >> 33) % 255 - 127)
    return step, quants


def stored(position: int, layer: int, head: int, key: bool) -> bytes:
    step, quants = row(position, layer, head, key)
    if key:  # q8_0
        return struct.pack("<e32b", step, *quants)
    return struct.pack("<32e", *(step * q for q in quants))


def aligned(n: int) -> int:
    return (n + 63) // 64 * 64


def main(path: str) -> None:
    payload, tensors = b"", []

    def add(name: str, dtype: str, shape: list[int], first: int, data: bytes) -> None:
        nonlocal payload
        tensors.append({"name": name, "dtype": dtype, "shape": shape, "first": first,
                        "offset": len(payload), "bytes": len(data)})
        payload += data + bytes(aligned(len(data)) - len(data))

    for i, (layer, runs) in enumerate(zip(LAYERS, RUNS)):
        for first, last in runs:
            for key in (True, False):
                data = b"".join(stored(p, i, head, key) for head in range(layer["kv_heads"]) for p in range(first, last))
                add(f"layers.{i}.{'k' if key else 'v'}", "q8_0" if key else "f16",
                    [layer["kv_heads"], last - first, layer["head_dim"]], first, data)
    add("logits", "f32", [3], 75, struct.pack("<3f", 0.5, -2.0, 1024.25))

    header = json.dumps({
        "format": "kvtide-state",
        "identity": {"architecture": "golden", "model": "0123abcd", "tokenizer": "fedc9876"},
        "exact": True,
        "spec": {"layers": LAYERS, "key_type": "q8_0", "value_type": "f16", "capacity": 128, "max_append": 16,
                 "slack": 3, "rotary": True, "rolling": None},
        "position": 75,
        "attention_size": 70,
        "segments": [[0, 20, 5], [25, 40, 0], [45, 75, 0]],
        "released": [0, 55],
        "forgotten": [0, 62],
        "edited": 70,
        "tokens": [i * i % 997 for i in range(75)],
        "payload_bytes": len(payload),
        "tensors": tensors,
    }, indent=1).encode()
    front = b"KVTIDE\0\1" + struct.pack("<IIQ", 1, crc32c(header), len(header)) + header
    front += bytes(aligned(len(front)) - len(front))
    sums = b"".join(struct.pack("<I", crc32c(payload[at:at + (1 << 20)])) for at in range(0, len(payload), 1 << 20))
    digest = hashlib.sha256(front + sums).digest()
    total = len(front) + len(payload) + len(sums) + 48
    with open(path, "wb") as file:
        file.write(front + payload + sums + digest + struct.pack("<Q", total) + b"KVTIDEND")


if __name__ == "__main__":
    main(sys.argv[1])
