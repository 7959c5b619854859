"""A text goes from kvtide's session to a package of another exporter, and back; for compare_coreml.py.

The torch modules of coreml_decoders.py are written as Hugging Face folders, too, so that a session and a package hold the same model. Each
reads half of a text, the other goes on with its rows, and both must say what torch says.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess

import numpy as np
import torch

import coreml_decoders as decoders

TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "folders" / "llama-f32" / "tokenizer.json"
TEXT = "a sea is a tide and a sea is"
GREEDY = 6


def write_folder(folder: pathlib.Path, config: dict, tensors: dict[str, torch.Tensor]) -> None:
    folder.mkdir()
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    common = {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": 64}
    (folder / "config.json").write_text(json.dumps(config | common))
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().float().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def llama_folder(folder: pathlib.Path, module: decoders.Llama) -> None:
    width, inner = module.H * module.D, module.layers[0]["up"].out_features
    config = {"model_type": "llama", "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": module.L,
              "num_attention_heads": module.H, "num_key_value_heads": module.KV, "head_dim": module.D, "hidden_act": "silu",
              "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 100.0, "tie_word_embeddings": False}  # fmt: skip
    tensors = {"model.embed_tokens.weight": module.embed.weight, "model.norm.weight": module.norm.weight,
               "lm_head.weight": module.head.weight}  # fmt: skip
    names = {"n1": "input_layernorm", "n2": "post_attention_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
             "v": "self_attn.v_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}  # fmt: skip
    for i, layer in enumerate(module.layers):
        for ours, theirs in names.items():
            tensors[f"model.layers.{i}.{theirs}.weight"] = layer[ours].weight
    write_folder(folder, config, tensors)


def gpt2_folder(folder: pathlib.Path, module: decoders.Gpt2) -> None:
    width = module.H * module.D
    config = {"model_type": "gpt2", "n_embd": width, "n_inner": 4 * width, "n_layer": module.L, "n_head": module.H, "n_positions": module.S,
              "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}  # fmt: skip
    tensors = {"transformer.wte.weight": module.tokens.weight, "transformer.wpe.weight": module.places.weight,
               "transformer.ln_f.weight": module.norm.weight, "transformer.ln_f.bias": module.norm.bias}  # fmt: skip
    names = {"n1": "ln_1", "n2": "ln_2", "qkv": "attn.c_attn", "o": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
    for i, layer in enumerate(module.layers):
        for ours, theirs in names.items():
            weight = layer[ours].weight
            tensors[f"transformer.h.{i}.{theirs}.weight"] = weight if weight.ndim == 1 else weight.T  # Conv1D has inputs first
            tensors[f"transformer.h.{i}.{theirs}.bias"] = layer[ours].bias
    write_folder(folder, config, tensors)


def torch_says(module, ids: list[int], count: int) -> tuple[list[int], float]:
    """The likeliest tokens behind the ids, one after another, and the smallest lead of one of them as a share of the range."""
    decoders.clear(module)
    text, lead = list(ids), 1.0
    with torch.no_grad():
        for i in range(count):
            part = text if i == 0 else text[-1:]
            inputs = module.inputs(np.array([part], np.int32), len(text))
            logits = module(*map(torch.from_numpy, inputs.values())).numpy()[0, -1]
            best = np.sort(logits)[-2:]
            lead = min(lead, float((best[1] - best[0]) / np.ptp(logits)))
            text.append(int(logits.argmax()))
    return text[len(ids) :], lead


class Bridge:
    def __init__(self, kvtide: str, folder: pathlib.Path, name: str, module, write_model) -> None:
        self.kvtide, self.folder, self.name, self.module = kvtide, folder, name, module
        self.model, self.package = folder / f"{name}-model", folder / f"{name}-bridge.mlpackage"
        write_model(self.model, module)
        decoders.clear(module)
        module.package().save(str(self.package))
        self.ids = json.loads(self.run("tokenize", "-m", self.model, "-p", TEXT, "--no-bos", "--json"))["ids"]
        self.half = len(self.ids) // 2

    def run(self, *arguments) -> str:
        done = subprocess.run([self.kvtide, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def path(self, name: str) -> pathlib.Path:
        return self.folder / f"{self.name}-{name}"

    def session(self, *arguments) -> list[int]:
        report = self.path("report.json")
        self.run("run", "-m", self.model, "-c", self.module.S, "--exact", "--no-bos", "--report", report, *arguments)
        return json.loads(report.read_text())["tokens"]

    def packages(self, *arguments) -> list[int]:
        return json.loads(self.run("coreml", "run", self.package, "--json", *arguments))["tokens"]

    def to_package(self) -> tuple[list[int], dict]:
        """A session reads all; the package writes on from its rows. Also the rows in the shapes of the package's own states."""
        self.session("-p", TEXT, "-n", 0, "--save-state", self.path("a.kv"))
        self.run("state", "export", self.path("a.kv"), "--layout", "per-layer", "--out", self.path("a.safetensors"))
        self.run("state", "export", self.path("a.kv"), "--layout", "stacked", "--capacity", self.module.S, "--out", self.path("a-npy"))
        states = {name: np.load(self.path("a-npy") / f"{name}.npy") for name in self.module.STATES}
        return self.packages("--load-state", self.path("a.safetensors"), "-n", GREEDY), states

    def to_session(self) -> list[int]:
        """The package reads all; a session writes on from its rows, the last token read once more."""
        ids = ",".join(map(str, self.ids))
        self.packages("--ids", ids, "-n", 1, "--save-state", self.path("b.safetensors"))
        self.run("state", "import", self.path("b.safetensors"), "--like", self.path("a.kv"), "--out", self.path("b.kv"))
        self.run("state", "truncate", self.path("b.kv"), "--length", len(self.ids) - 1)
        return self.session("--load-state", self.path("b.kv"), "-p", self.last_piece(), "-n", GREEDY)

    def last_piece(self) -> str:
        return json.loads(self.run("tokenize", "-m", self.model, "-p", TEXT, "--no-bos", "--json"))["pieces"][-1]


def compare_bridge(answers, kvtide: str, folder: pathlib.Path, failures) -> None:
    for name, make, write_model in (("gpt2", decoders.Gpt2, gpt2_folder), ("llama", lambda: decoders.Llama(sdpa=True), llama_folder)):
        torch.manual_seed(11)
        bridge = Bridge(kvtide, folder, name, make(), write_model)
        want, lead = torch_says(bridge.module, bridge.ids, GREEDY)
        written, states = bridge.to_package()
        failures.check(written == want, f"bridge {name}: the package goes on with {written}, torch with {want}")
        behind = bridge.to_session()
        failures.check(behind == want, f"bridge {name}: the session goes on with {behind}, torch with {want}")
        # The same rows through the package's own states: logits of the first token behind them.
        answers.ask(f"open bridge {bridge.package}")
        answers.ask("state bridge bridge -")
        for state, value in states.items():
            answers.ask(f"write bridge {state} 1", {"value": value.astype(np.float16)})
        text = bridge.ids + want[:1]
        inputs = bridge.module.inputs(np.array([want[:1]], np.int32), len(text))
        inputs = {key: np.asarray(v, np.float16 if v.dtype == np.float32 else v.dtype) for key, v in inputs.items()}
        got = answers.call("bridge", inputs, "bridge")["logits"]
        decoders.clear(bridge.module)
        with torch.no_grad():
            all_inputs = bridge.module.inputs(np.array([text], np.int32), len(text))
            logits = bridge.module(*map(torch.from_numpy, all_inputs.values())).numpy()[:, -1:]
        apart = float(np.abs(got - logits).max() / np.ptp(logits))
        failures.check(apart <= 2e-3, f"bridge {name}: logits behind a session's rows differ by {apart:.1e} of their range")
        print(f"bridge {name}: session to package and back, {GREEDY} tokens each as torch (least lead {lead:.1e}), logits within {apart:.1e}")
