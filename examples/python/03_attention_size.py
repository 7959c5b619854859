"""Reads a text, then lets each token see the newest positions only, and all of them again. Nothing is copied.

    python examples/python/03_attention_size.py MODEL.gguf "some text" [positions]
"""

import sys
import time

import kvtide


def main(path, text, positions="16"):
    with kvtide.Model.load(path) as model, model.session() as session:
        session.read(text)
        print(session.state)
        answers = {}
        for size in (None, int(positions), None):
            print(session.state.set_attention_size(size), "->", "all" if size is None else f"the newest {size}")
            before = session.position
            start = time.perf_counter()
            answer = session.complete("\n", max_tokens=12)
            took = time.perf_counter() - start
            print(f"  {answer.text!r} in {took * 1000:.1f} ms")
            # What was written is taken back, so that the next round starts from the same memory.
            session.state.truncate(before)
            answers.setdefault(size, []).append(answer.tokens)
        assert answers[None][0] == answers[None][1], "seeing everything again is as if nothing had been"
        print(session.state.policy)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except kvtide.Error as error:
        sys.exit(f"03_attention_size.py: {error}")
