"""Runs the kvtide program and brings back its answer as arrays and dicts. A refusal becomes ProgramError."""

import json
import pathlib
import subprocess

import numpy as np

EXACT = ["--exact", "-ctk", "f32", "-ctv", "f32"]  # f32 activations and an f32 memory: nothing but rounding is left
TIMEOUT_S = 1800


class ProgramError(Exception):
    pass


def run(program: str, *arguments: str) -> str:
    """stdout of the program."""
    try:
        done = subprocess.run([program, *arguments], capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"{arguments[0]}: no end after {TIMEOUT_S} s") from error
    except OSError as error:
        raise ProgramError(f"{program}: {error.strerror}") from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else "nothing on stderr"
        raise ProgramError(f"{arguments[0]}: exit status {done.returncode}: {why}")
    return done.stdout.decode("utf-8")


def logits(program: str, model: pathlib.Path, text: pathlib.Path, out: pathlib.Path, *flags: str) -> np.ndarray:
    """float32 [position][vocabulary]. `out` is where the program writes; it is removed again."""
    try:
        run(program, "logits", "-m", str(model), "-f", str(text), "--all", "--out", str(out), *flags)
        result = np.load(out)
    except (OSError, ValueError) as error:
        raise ProgramError(f"logits: --out is not a readable .npy file: {error}") from error
    finally:
        out.unlink(missing_ok=True)
    if result.dtype != np.float32 or result.ndim != 2:
        raise ProgramError(f"logits: wrote {result.dtype} {list(result.shape)}; expected float32 [rows][vocabulary]")
    return result


def perplexity(program: str, model: pathlib.Path, text: pathlib.Path, n_ctx: int, chunks: int, *flags: str) -> dict:
    size = ["-c", str(n_ctx), "--chunks", str(chunks)]
    answer = run(program, "ppl", "-m", str(model), "-f", str(text), *size, "--json", *flags)
    try:
        result = json.loads(answer)
        for key in ("ppl", "ppl_se", "tokens_scored", "chunks"):
            result[key]
    except (ValueError, KeyError, TypeError) as error:
        raise ProgramError(f"ppl --json: not the JSON that was promised: {error!r}") from error
    return result
