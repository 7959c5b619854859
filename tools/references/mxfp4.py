"""MXFP4: blocks of 32 elements with one exponent, in the layouts of Hugging Face folders and of GGUF files."""

import json
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file, save_file

LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def quantise(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[..][n] as codes 0 to 15 [..][n / 32][32] and exponents [..][n / 32], the scale 2^(exponent - 127)."""
    blocks = rows.reshape(*rows.shape[:-1], -1, 32)
    largest = np.abs(blocks).max(axis=-1)
    exponents = np.floor(np.log2(np.maximum(largest, 2.0**-100))) - 2
    scaled = blocks / np.exp2(exponents)[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - LEVELS).argmin(axis=-1) + np.where(scaled < 0, 8, 0)
    return codes.astype(np.uint8), (exponents + 127).astype(np.uint8)


def floats(codes: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    values = np.concatenate([LEVELS, -LEVELS])[codes] * np.exp2(exponents.astype(np.float32) - 127)[..., None]
    return values.reshape(*values.shape[:-2], -1).astype(np.float32)


def gguf_bytes(codes: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """The exponent, then bytes of elements i and i + 16."""
    packed = codes[..., :16] | codes[..., 16:] << 4
    blocks = np.concatenate([exponents[..., None], packed], axis=-1)
    return np.ascontiguousarray(blocks.reshape(*blocks.shape[:-2], -1))


def round_experts(model) -> None:
    """Rounds the experts of a gpt-oss model, [expert][inputs][outputs], to what MXFP4 holds."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")):
                rows = parameter.transpose(1, 2).numpy()
                parameter.copy_(torch.from_numpy(floats(*quantise(rows))).transpose(1, 2))


def pack_folder(folder: pathlib.Path) -> None:
    """Replaces the experts of a saved gpt-oss folder by blocks of neighbours and scales, as it is published."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        codes, exponents = quantise(tensors.pop(name).transpose(1, 2).contiguous().numpy())
        tensors[name + "_blocks"] = torch.from_numpy(np.ascontiguousarray(codes[..., ::2] | codes[..., 1::2] << 4))
        tensors[name + "_scales"] = torch.from_numpy(np.ascontiguousarray(exponents))
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
