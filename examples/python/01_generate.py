"""Reads a prompt and goes on writing, token by token.

    python examples/python/01_generate.py MODEL.gguf "Once upon a time" [tokens]
"""

import math
import sys
import time

import kvtide


def main(path, prompt, tokens="64"):
    with kvtide.Model.load(path) as model, model.session() as session:
        print(model, file=sys.stderr)

        start = time.perf_counter()
        count = session.read(prompt, progress=lambda done, total: print(f"read {done}/{total}", file=sys.stderr))
        read_seconds = time.perf_counter() - start

        print(prompt, end="", flush=True)
        start = time.perf_counter()
        surprise = 0.0
        generation = session.generate(max_tokens=int(tokens), temperature=0.8, seed=1)
        for piece in generation:
            print(piece, end="", flush=True)
            surprise -= piece.log_probability or 0.0
        write_seconds = time.perf_counter() - start
        print()

        written = len(generation.tokens)
        print(f"{count} tokens read at {count / read_seconds:.0f} per second", file=sys.stderr)
        print(f"{written} tokens written at {written / write_seconds:.0f} per second", file=sys.stderr)
        print(f"ended by {generation.reason}, perplexity {math.exp(surprise / max(1, written)):.1f}", file=sys.stderr)
        print(session, file=sys.stderr)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except kvtide.Error as error:
        sys.exit(f"01_generate.py: {error}")
