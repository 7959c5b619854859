"""Many sessions of several turns against a server, and what came of each turn.

Every turn is seeded, so that a server that never failed gives the answers that all others are held to. Of chats that is the
text and the log-probability of each token, which are the bits of its logits.
"""

import asyncio
import contextlib
import hashlib
import json
import random
import time
from dataclasses import dataclass, field

import httpx

THINGS = "rivers ships kings bread winters bridges owls letters markets lamps stones gardens wolves songs harbours clocks".split()
KINDS = ("chat", "responses", "stream", "chat")
PATIENCE = 240.0  # seconds for one turn, retries and all


@dataclass
class Turn:
    text: str
    bits: str  # a hash
    tokens: int  # of the conversation, answer included
    cached: int
    written: int
    response: str | None = None
    seconds: float = 0.0
    waited: float = 0.0  # from the first failure to the answer; 0: there was none
    failures: list = field(default_factory=list)


@dataclass
class Outcome:
    turns: dict = field(default_factory=dict)  # (session, turn): Turn
    lost: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    stuck: list = field(default_factory=list)
    seconds: float = 0.0

    @property
    def written(self):
        return sum(turn.written for turn in self.turns.values())


class Failed(Exception):
    """Something that a client tries again."""


def said(session, number):
    draw = random.Random(session * 1000 + number)
    one, two, three = draw.sample(THINGS, 3)
    return f"{draw.choice(['Compare', 'Say something of', 'Think about'])} {one}, {two} and {three}."


def sampling(session, number):
    return {"temperature": 0} if session % 2 else {"temperature": 0.8, "seed": session * 100 + number}


def bits_of(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Talk:
    def __init__(self, number, tokens):
        self.number = number
        self.kind = KINDS[number % len(KINDS)]
        self.name = f"talk-{number}"
        self.messages = []
        self.previous = None
        self._tokens = tokens

    async def say(self, client, number):
        words = said(self.number, number)
        if self.kind == "responses":
            return await self._respond(client, number, words)
        messages = [*self.messages, {"role": "user", "content": words}]
        body = {"messages": messages, "max_tokens": self._tokens, "logprobs": True, "top_logprobs": 2, "stream": self.kind == "stream",
                **sampling(self.number, number)}  # fmt: skip
        if self.kind == "stream":
            body["stream_options"] = {"include_usage": True}
            text, logprobs, usage = await streamed(client, body, self.name)
        else:
            answer = await whole(client, "/v1/chat/completions", body, self.name)
            choice, usage = answer["choices"][0], answer["usage"]
            text, logprobs = choice["message"]["content"], choice["logprobs"]["content"]
        return Turn(text, bits_of(text, logprobs), usage["total_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
                    usage["completion_tokens"])  # fmt: skip

    async def _respond(self, client, number, words):
        body = {"input": words, "max_output_tokens": self._tokens, **sampling(self.number, number)}
        if self.previous:
            body["previous_response_id"] = self.previous
        # Half of them name their session, as a client that has seen the header would.
        answer = await whole(client, "/v1/responses", body, self.name if self.number % 8 == 1 else None)
        text, usage = answer["output"][0]["content"][0]["text"], answer["usage"]
        return Turn(text, bits_of(text), usage["total_tokens"], usage["input_tokens_details"]["cached_tokens"],
                    usage["output_tokens"], answer["id"])  # fmt: skip

    def acknowledge(self, number, turn):
        self.messages += [{"role": "user", "content": said(self.number, number)}, {"role": "assistant", "content": turn.text}]
        self.previous = turn.response


async def whole(client, path, body, session):
    headers = {"x-session-id": session} if session else {}
    answer = await client.post(path, json=body, headers=headers)
    if answer.status_code == 404:
        raise LookupError(answer.text)
    if answer.status_code != 200:
        raise Failed(f"{answer.status_code} {answer.text[:120]}")
    return answer.json()


async def streamed(client, body, session):
    text, logprobs, usage, done = "", [], None, False
    async with client.stream("POST", "/v1/chat/completions", json=body, headers={"x-session-id": session}) as answer:
        if answer.status_code != 200:
            raise Failed(f"{answer.status_code} {(await answer.aread())[:120]!r}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise Failed(event["error"]["message"])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
                logprobs += (choice["logprobs"] or {}).get("content") or []
    if not done:
        raise Failed("the stream broke")
    return text, logprobs, usage


async def one_turn(client, talk, number, outcome):
    """The turn, tried until it is acknowledged. None: never."""
    begun, first_failure, failures = time.monotonic(), None, []
    while time.monotonic() - begun < PATIENCE:
        try:
            turn = await talk.say(client, number)
            now = time.monotonic()
            turn.seconds, turn.failures = now - begun, failures
            turn.waited = 0.0 if first_failure is None else now - first_failure
            return turn
        except LookupError as error:
            # The answer before was acknowledged, and is not there.
            outcome.lost.append((talk.number, number, str(error)))
            return None
        except (Failed, httpx.HTTPError, json.JSONDecodeError) as error:
            failures.append(f"{type(error).__name__}: {error}"[:160])
            first_failure = first_failure or time.monotonic()
            await asyncio.sleep(0.3)
    outcome.stuck.append((talk.number, number, failures[-1:]))
    return None


async def run(base, turns, tokens, at_once, during=None, seconds=None):
    """Sessions of so many turns each, so many at once; after ``seconds`` no turn is begun.

    ``during`` is a coroutine function of the outcome that runs beside and is cancelled at the end.
    """
    outcome = Outcome()
    places = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=at_once + 4, max_keepalive_connections=at_once)
    begun = time.monotonic()
    async with httpx.AsyncClient(base_url=base, timeout=60.0, limits=limits) as client:

        async def talk_through(talk, count):
            for number in range(count):
                async with places:  # turns of the sessions mix, as those of people do
                    if seconds is not None and time.monotonic() - begun > seconds:
                        return
                    turn = await one_turn(client, talk, number, outcome)
                if turn is None:
                    return
                outcome.turns[talk.number, number] = turn
                talk.acknowledge(number, turn)

        beside = asyncio.ensure_future(during(outcome)) if during else None
        await asyncio.gather(*(talk_through(Talk(number, tokens), count) for number, count in enumerate(turns)))
        outcome.seconds = time.monotonic() - begun
        if beside:
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside  # what went wrong in it makes the run worthless
    return outcome


def compare(outcome, reference):
    """Notes which answers are others than those of a server that never failed: the first of each session."""
    wrong = set()
    for (session, number), turn in sorted(outcome.turns.items()):
        wanted = reference.turns[session, number]
        if turn.bits != wanted.bits and session not in wrong:
            wrong.add(session)
            outcome.wrong.append((session, number, wanted.text, turn.text))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
