"""What replicas of one store have to have in common, so that an answer is the same bits whoever gives it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Mapping

import kvtide
from kvtide._loaded import LoadedModel
from kvtide.cluster.delta import header_of
from kvtide.model import Model

_PROBE = 48  # tokens


def configuration_of(model: LoadedModel, folder: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values: the model and its tokenizer, the version of the program, what its options change, and the bits of one
    short text, which tell processors or builds apart that do not compute alike."""
    file = folder / "alike.kv"
    exact = bool(options.get("exact", False))
    with _as_model(model).session(context=2 * _PROBE, exact=exact) as session:
        session.read([token % model.vocabulary for token in range(1, _PROBE + 1)])
        bits = hashlib.sha256(session.logits.tobytes()).hexdigest()
        session.save(file)
    identity = header_of(file.read_bytes())[0].get("identity") or {}
    file.unlink()
    return {
        "kvtide": kvtide.__version__,
        "model": identity.get("model"),
        "tokenizer": identity.get("tokenizer"),
        "exact": exact,
        "context": options.get("context") or model.context_length,
        "max_tokens": options.get("max_tokens", 2048),
        "session_kv": options.get("session_kv", "full"),
        "chat_template": options.get("chat_template") or "",
        "bits": bits,
    }


def _as_model(model: LoadedModel) -> Model:
    if not isinstance(model, Model):
        raise TypeError("the model of a cluster must be a kvtide.Model or the path of one")
    return model
