"""Reads a text once and continues it in several ways: forks share the memory of what they have in common.

    python examples/python/04_fork.py MODEL.gguf "some text" [ways]
"""

import sys
import time

import kvtide


def main(path, text, ways="3"):
    with kvtide.Model.load(path) as model, model.session() as session:
        session.read(text)
        before = session.logits

        start = time.perf_counter()
        kept = session.state.fork()
        print(f"the memory forked in {(time.perf_counter() - start) * 1e6:.0f} us: {kept}")

        for seed in range(int(ways)):
            with session.fork() as fork:
                answer = fork.complete(max_tokens=12, temperature=0.9, seed=seed)
                print(f"way {seed}: {answer.text!r}")
                print(f"  {fork.state}")

        # Nothing that the forks wrote shows in the session, and it can always go back to what was kept.
        assert session.position == kept.position and (session.logits == before).all()
        session.complete(max_tokens=12)
        session.restore(kept)
        assert (session.logits == before).all()
        print(session)


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except kvtide.Error as error:
        sys.exit(f"04_fork.py: {error}")
