"""Golden files of a tool: written, or compared with what the references give now."""

import sys


def store(folder, files, check):
    """files: pairs of a name and its text. With `check` nothing is written; exits when a file differs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files:
        path = folder / name
        if check:
            if not path.exists() or path.read_bytes() != content.encode():
                sys.exit(f"{path} is not what the references give now")
        else:
            path.write_bytes(content.encode())
            print(f"{path.name}: {len(content.encode())} bytes")
