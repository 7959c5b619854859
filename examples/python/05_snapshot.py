"""Saves the memory of a text that was read, looks into the file without a model, and goes on from it.

    python examples/python/05_snapshot.py MODEL.gguf "some text" SNAPSHOT.kv
"""

import sys

import numpy as np

import kvtide


def main(path, text, snapshot):
    with kvtide.Model.load(path) as model:
        with model.session() as session:
            session.read(text)
            session.save(snapshot)
            expected = session.complete(max_tokens=12)

        # A state stands alone: its rows are arrays, in the layout that the other runtime wants.
        with kvtide.State.load(snapshot) as state:
            print(state)
            print("read:", model.tokenizer.decode(list(state)))
            for name, array in state.arrays("stacked", exact_only=True).items():
                print(f"  {name}: {array.dtype} {array.shape}")
            keys = state.keys(0)
            print(f"  keys of layer 0, in place: {keys.shape}, norm {np.linalg.norm(keys.astype(np.float32)):.3f}")

        with model.session() as session:
            session.load(snapshot)
            answer = session.complete(max_tokens=12)
            print(f"goes on: {answer.text!r}")
            assert answer == expected, "a loaded memory goes on with the same bits"


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except kvtide.Error as error:
        sys.exit(f"05_snapshot.py: {error}")
