"""Computes golden arrays with `transformers`, for `kvtide validate --reference FOLDER` (docs/validator.md).

    python tools/references/golden_arrays.py MODEL_FOLDER --out FOLDER [--text TEXT | --ids 1,2,3] [--tokens 64] [--greedy 16]

The whole text goes through the model at once, in float32. Hooks take the residual stream in front of the first layer and
behind every layer (what `output_hidden_states` gives last has already been normed), the cache has the keys and values.
"""

import argparse
import copy
import pathlib

import numpy as np
import safetensors
import torch
import transformers

TEXT = "the sea was calm, and the men who came home in the evening told of a light that none of them had seen before."


def load(folder: pathlib.Path) -> torch.nn.Module:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    # Of a ZAYA1, initialisation overwrites the last balancing bias behind the loader's back.
    buffers = dict(model.named_buffers())
    for file in folder.glob("*.safetensors"):
        with safetensors.safe_open(file, "pt") as stored:
            for name in buffers.keys() & set(stored.keys()):
                buffers[name].copy_(stored.get_tensor(name))
    return model


def layers_of(model: torch.nn.Module) -> torch.nn.ModuleList:
    base = model.base_model
    for name in ("layers", "h"):
        if hasattr(base, name):
            return getattr(base, name)
    raise SystemExit(f"{type(base).__name__} has its layers under no known name (layers, h)")


def frequencies_of(model: torch.nn.Module, layer: int) -> np.ndarray | None:
    """Radians per position of every rotated pair; None where positions are not rotated."""
    rotary = getattr(model.base_model, "rotary_emb", None)
    if rotary is None:
        return None
    types = getattr(model.config.get_text_config(), "layer_types", None)
    names = [f"{types[layer]}_inv_freq"] if types else []
    for name in [*names, "inv_freq"]:
        if hasattr(rotary, name):
            return getattr(rotary, name).double().numpy()
    return None


def empty_cache(model: torch.nn.Module) -> transformers.DynamicCache:
    """One that keeps every row, of sliding layers too; of layers that also carry convolutions, with room for those."""
    config = copy.deepcopy(model.config)
    types = getattr(config, "layer_types", None) or []
    if not any(name.startswith("hybrid") for name in types):
        return transformers.DynamicCache()
    config.layer_types = ["hybrid" for _ in types]
    return transformers.DynamicCache(config=config)


@torch.no_grad()
def arrays_of(model: torch.nn.Module, ids: list[int], greedy: int) -> dict[str, np.ndarray]:
    layers, streams = layers_of(model), {}

    def take(name):
        return lambda _module, _inputs, output: streams.__setitem__(name, output[0] if isinstance(output, tuple) else output)

    hooks = [layer.register_forward_hook(take(i + 1)) for i, layer in enumerate(layers)]
    hooks.append(layers[0].register_forward_pre_hook(
        lambda _module, inputs, more: streams.__setitem__(0, (inputs or (more["hidden_states"],))[0].clone()), with_kwargs=True))
    cache = empty_cache(model)
    logits = model(torch.tensor([ids]), past_key_values=cache, use_cache=True).logits[0]
    for hook in hooks:
        hook.remove()
    arrays = {"tokens": np.array(ids, np.int32), "logits": logits.float().numpy(),
              "hidden": np.stack([streams[i].reshape(len(ids), -1).float().numpy() for i in range(len(layers) + 1)])}
    for i in range(len(layers)):
        arrays[f"keys.{i}"] = cache.layers[i].keys[0].float().numpy()
        arrays[f"values.{i}"] = cache.layers[i].values[0].float().numpy()
        frequencies = frequencies_of(model, i)
        if frequencies is not None:
            arrays[f"frequencies.{i}"] = frequencies
    written: list[int] = []
    for _ in range(greedy):
        written.append(int(model(torch.tensor([ids + written]), use_cache=False).logits[0, -1].argmax()))
    if written:
        arrays["continuation"] = np.array(written, np.int32)
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--text", default=TEXT)
    what.add_argument("--ids")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--greedy", type=int, default=16)
    options = parser.parse_args()

    model = load(options.model)
    if options.ids:
        ids = [int(item) for item in options.ids.split(",")]
    else:
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(options.model / "tokenizer.json"))
        ids = tokenizer(options.text)["input_ids"]
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("*.npy"):
        old.unlink()
    for name, array in arrays_of(model, ids[: options.tokens], options.greedy).items():
        np.save(options.out / f"{name}.npy", np.ascontiguousarray(array))


if __name__ == "__main__":
    main()
