"""What it costs to keep a session in a store, by the length of its text: processor time and bytes of a turn.

    build/venv-python/bin/python bench/session_turns.py MODEL [--tokens 12] [--words 300 1500 6000]

One thread, one session at a time, a store in a temporary folder. The first two turns of a session are not counted:
one of them reads the text.
"""

import argparse
import asyncio
import json
import resource
import tempfile

import kvtide
import kvtide.cluster
import kvtide.serve
from kvtide.cluster.inside import ask

TURNS, WARM = 8, 2


def spent(figures):
    used = resource.getrusage(resource.RUSAGE_SELF)
    written = (0, 0) if figures is None else (figures.saved_bytes, figures.snapshot_bytes)
    return (1000 * (used.ru_utime + used.ru_stime), *written)


async def talk(app, words, tokens, session, figures=None):
    """Of a turn: milliseconds of the processor, bytes written and bytes of a whole snapshot; and the text's tokens at its end."""
    messages = [{"role": "user", "content": "word " * words}, {"role": "assistant", "content": "I see."}]
    length, begun = 0, (0.0, 0, 0)
    for turn in range(TURNS):
        if turn == WARM:
            begun = spent(figures)
        messages.append({"role": "user", "content": f"Say something of the number {turn}."})
        headers = {"x-session-id": session} if session else {}
        body = {"messages": messages, "max_tokens": tokens, "temperature": 0}
        status, data = await ask(app, "POST", "/v1/chat/completions", body, headers)
        answer = json.loads(data)
        if status != 200:
            raise SystemExit(f"the server answers {status}: {answer}")
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        length = answer["usage"]["total_tokens"]
    return [(b - a) / (TURNS - WARM) for a, b in zip(begun, spent(figures))], length


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=12, help="of an answer")
    parser.add_argument("--words", type=int, nargs="+", default=[300, 1500, 6000], help="at the beginning of the text")
    options = parser.parse_args()
    how = {"kv_budget": "4G", "threads": 1, "hosts": None, "chat_template": "chatml"}
    print("| tokens of the text | ms a turn | with a store | MB written a turn | MB of a whole snapshot |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        plain = kvtide.serve.app(kvtide.Model.load(options.model), **how)
        stored = kvtide.cluster.app(options.model, store=f"{folder}/store", work_folder=f"{folder}/work", **how)
        for words in options.words:
            (alone, _, _), length = asyncio.run(talk(plain, words, options.tokens, None))
            (kept, saved, whole), _ = asyncio.run(talk(stored, words, options.tokens, f"talk of {words}", stored.figures))
            print(f"| {length:,} | {alone:.0f} | {kept:.0f} | {saved / 1e6:.1f} | {whole / 1e6:.1f} |", flush=True)
        stored.close()
        plain.close()


if __name__ == "__main__":
    main()
