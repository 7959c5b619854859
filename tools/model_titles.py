"""Names of models as pictures and tables show them, where the name in the file's metadata says something else."""

TITLES = {
    "Smollm2 135M 8k Lc100K Mix1 Ep2": "SmolLM2-135M",
    "smollm2": "SmolLM2-135M",
    "Gemma 3 270m": "Gemma-3-270M",
    "gemma3": "Gemma-3-270M",
    "smollm2-135m-instruct-q4_1": "SmolLM2-135M",
    "gemma-3-270m-q4_k_m": "Gemma-3-270M",
}


def title_of(name: str) -> str:
    return TITLES.get(name.removesuffix(".gguf"), name)
