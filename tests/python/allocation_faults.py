"""One operation, run with every allocation of kvtide's failing once, and with all failing from each on.

    LD_PRELOAD=liballocation_faults.so python allocation_faults.py OPERATION MODELS SCRATCH

Run by test_allocation_faults.py. With KVTIDE_EVERY_ALLOCATION=1 every number is run, otherwise some 40 of each mode.
"""

import ctypes
import faulthandler
import gc
import hashlib
import os
import shutil
import sys
from pathlib import Path

import numpy as np

import kvtide
from kvtide import coreml, state_transition

OPERATOR_NEW, MMAP, MADVISE, THREADS = 1, 4, 8, 16  # of tests/faults/allocation_faults.h
PATIENCE = 60  # seconds until a call that waits is shown and ended
PRIMES = [1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 37, 43, 53, 61, 71, 83, 97, 113, 131, 151, 173, 199, 229, 263, 307, 353]
KEPT = ["attention.0/query", "attention.1/query"]
TOKENS = list(range(3, 43))

faults = ctypes.CDLL(None)
faults.kvtide_faults_arm.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_uint]
faults.kvtide_faults_disarm.restype = ctypes.c_int64
faults.kvtide_faults_hit.restype = ctypes.c_int64


class Totals(ctypes.Structure):
    _fields_ = [("blocks", ctypes.c_int64), ("mapped_bytes", ctypes.c_int64)]


faults.kvtide_faults_alive.restype = Totals


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


class World:
    """What the operations work on; each makes what it needs."""

    def __init__(self, models, scratch):
        self.path = models / "llama-mha-untied.gguf"
        self.folder = models.parent / "folders" / "gpt2-f32"
        self.scratch = scratch
        self.model = kvtide.Model.load(self.path, threads=1)
        self.gpt2 = kvtide.Model.load(self.folder, threads=1)
        self.made = self.session = self.written = self.arrays = None

    def make(self):
        self.session = self.model.session(context=100, threads=2)
        self.session.read(TOKENS[:20])

    def seen(self):
        s = self.session
        return s.position, digest(s.logits) if s.position else "", s.tokens.tolist()

    def seen_after_more(self):
        self.session.read(TOKENS[30:33])
        return self.seen()

    def destroy(self):
        self.made = self.session = self.written = self.arrays = None
        gc.collect()


class Operation:
    def __init__(self, world):
        self.world = world

    def make(self):
        self.world.make()

    def look(self):
        return self.world.seen()

    def end(self):
        return self.world.seen_after_more()


class Load(Operation):
    def make(self):
        pass

    def run(self):
        self.world.made = kvtide.Model.load(self.world.path, threads=2)

    def look(self):
        return None

    def end(self):
        with self.world.made.session(threads=1) as session:
            session.read(TOKENS[:5])
            return digest(session.logits)


class MakeSession(Operation):
    def make(self):
        pass

    def run(self):
        self.world.session = self.world.model.session(context=100, threads=2)

    def look(self):
        return None


class Read(Operation):
    def run(self):
        self.world.session.read(TOKENS[20:25])


class Generate(Operation):
    def run(self):
        if self.world.session.position > 20:  # what was written before memory ended stands in the session
            self.world.make()
        self.world.written = self.world.session.complete(max_tokens=4)

    def look(self):
        return None

    def end(self):
        return self.world.written.text, self.world.seen()


class Iterate(Operation):
    """Texts, ids and options on their way into C++, token by token."""

    options = {"max_tokens": 4, "stop": ["a stop string of some length", "and another"], "stop_tokens": [61, 62, 63]}

    def run(self):
        if self.world.session.position > 20:
            self.world.make()
        self.world.written = list(self.world.session.generate(history=TOKENS, **self.options))

    def look(self):
        return None

    def end(self):
        return self.world.written, self.world.seen()


class Answer(Iterate):
    def run(self):
        if self.world.session.position > 20:
            self.world.make()
        self.world.written = self.world.session.complete(history=TOKENS, **self.options)


class Hooks(Iterate):
    options = {"max_tokens": 3, "logits_processor": lambda tokens, logits: -logits, "stopping_criteria": lambda g: False}


class Conversation(Operation):
    def make(self):
        pass

    def run(self):
        talk = [("user", "a message of more than a few characters"), ("assistant", "an answer, likewise not short")]
        ids = self.world.model.encode_chat([*talk, talk[0]], template="mistral-instruct")
        self.world.made = ids, self.world.model.tokenizer.decode(ids)

    def look(self):
        return None

    def end(self):
        return self.world.made


class MakeProcedural(MakeSession):
    def run(self):
        heads = [(0.5, 1.0, 1.0)] * 8
        options = {"full_type": "automatic", "score": "attention", "summary": "positional", "kv_heads": 4, "heads": heads}
        self.world.session = self.world.model.session(threads=2, kv_budget="1M", procedural=options)
        self.world.session.read(TOKENS[:20])


class OwnState(Operation):
    def make(self):
        shape = (4, 1, 2, 64, 8)
        self.rows = {"keyCache": np.ones(shape, np.float16), "valueCache": np.ones(shape, np.float16), "pastLen": [30]}

    def run(self):
        state = kvtide.State(layers=[(2, 8, None)] * 4, capacity=64)
        state.write(self.rows, tokens=TOKENS[:30])
        self.world.made = state.fork()
        self.world.arrays = self.world.made.keys(1, copy=True), self.world.made.tokens, self.world.made.plan("truncate", 3)

    def look(self):
        return None

    def end(self):
        keys, tokens, plan = self.world.arrays
        return digest(keys), digest(tokens), plan.refusal, repr(self.world.made)


class Validate(Operation):
    def make(self):
        pass

    def run(self):
        report = kvtide.validate(self.world.model, tokens=TOKENS[:8], count=8, chunks=[1, 4], free=2, special=[2], threads=1)
        self.world.made = report.passed, report.tokens

    def look(self):
        return None

    def end(self):
        return self.world.made


class Shards(Operation):
    def make(self):
        self.folder = self.world.scratch / "shards"

    def run(self):
        for left in (self.folder, self.folder.with_suffix(".incomplete")):  # removing it may need memory, too
            shutil.rmtree(left, ignore_errors=True)
        kvtide.ShardFolder.export(self.world.folder, self.folder, type="int8", min_elements=1, keep_f16=KEPT, threads=1)
        folder = kvtide.ShardFolder(self.folder, threads=1)
        self.world.made = folder.open("embedding").predict({"ids": TOKENS[:4]}), len(folder.shards)

    def look(self):
        return None

    def end(self):
        hidden, count = self.world.made
        return digest(hidden), count


class Fork(Operation):
    def run(self):
        self.world.made = self.world.session.fork()

    def end(self):
        self.world.made.read(TOKENS[30:33])
        return digest(self.world.made.logits), self.world.seen_after_more()


class Save(Operation):
    def run(self):
        self.world.session.save(self.world.scratch / "memory.kv")

    def end(self):
        self.world.session.load(self.world.scratch / "memory.kv")
        return self.world.seen_after_more()


class Restore(Operation):
    def make(self):
        self.world.make()
        self.world.session.save(self.world.scratch / "memory.kv")
        self.world.session.read(TOKENS[20:22])

    def run(self):
        self.world.session.load(self.world.scratch / "memory.kv")


class Views(Operation):
    def run(self):
        state = self.world.session.state
        self.world.arrays = [state.keys(0), state.values(1)]

    def end(self):
        shown = [digest(array) for array in self.world.arrays]
        self.world.arrays = None
        assert self.world.session.state.views == 0
        return shown, self.world.seen_after_more()


class Transitions(Operation):
    def run(self):
        if self.world.session.position == 20:
            self.world.session.apply("truncate", 12)

    def look(self):
        return self.world.session.position in (20, 12)

    def end(self):
        return self.world.seen_after_more()


class Dense(Operation):
    def make(self):
        self.source = np.ones((4, 2, 2048, 64), dtype=np.float16)  # large enough for the native copy

    def run(self):
        self.world.arrays = state_transition.transition_kv_state(self.source, 4096, current_position=2000)

    def look(self):
        return digest(self.source)

    def end(self):
        return digest(self.world.arrays)


class Stateful(Operation):
    def make(self):
        self.world.made = kvtide.StatefulModel(self.world.gpt2, threads=2)
        self.call(0, 8)

    def call(self, first, last):
        ids = np.array([TOKENS[first:last]], dtype=np.int32)
        return self.world.made.predict(ids, np.ones((1, last), dtype=np.int32))

    def run(self):
        self.world.arrays = self.call(8, 10)

    def look(self):
        return self.world.made.past_length

    def end(self):
        return digest(self.world.arrays), self.world.made.past_length


class CoreMl(Operation):
    def make(self):
        self.world.made = coreml.Model(self.world.path.parents[1] / "coreml" / "functions.mlpackage", threads=2)
        self.world.written = self.world.made.make_state()

    def run(self):
        self.world.arrays = self.world.made.predict({"ids": [TOKENS[:5]]}, self.world.written)["logits"]

    def look(self):
        return digest(self.world.written.read_state("kCache"))

    def end(self):
        return digest(self.world.arrays), self.look()


OPERATIONS = {
    "load": Load,
    "session": MakeSession,
    "read": Read,
    "generate": Generate,
    "iterate": Iterate,
    "answer": Answer,
    "hooks": Hooks,
    "conversation": Conversation,
    "procedural": MakeProcedural,
    "own state": OwnState,
    "validate": Validate,
    "shards": Shards,
    "fork": Fork,
    "save": Save,
    "restore": Restore,
    "views": Views,
    "transitions": Transitions,
    "dense": Dense,
    "stateful": Stateful,
    "coreml": CoreMl,
}


def attempt(operation, at, from_then_on):
    """What was raised, and how many allocations were counted and failed."""
    raised = None
    faults.kvtide_faults_arm(at, from_then_on, OPERATOR_NEW | MMAP | MADVISE | THREADS)
    try:
        operation.run()
    except BaseException as error:
        faults.kvtide_faults_disarm()
        raised = error
    counted = faults.kvtide_faults_disarm()
    return raised, counted, faults.kvtide_faults_hit()


def trials(world, operation):
    for _ in range(2):
        operation.make()
        raised, count, _ = attempt(operation, 0, 0)
        assert raised is None, raised
        wanted = operation.end()
        world.destroy()
    every = os.environ.get("KVTIDE_EVERY_ALLOCATION")
    step = 1 if every else next((p for p in PRIMES if count // p <= 40), count // 40)
    errors = results = 0
    before = faults.kvtide_faults_alive()
    for from_then_on in (0, 1):
        at = 1 + from_then_on * (step // 2)
        while True:
            what = f"allocation {at} of {count}{' and all later ones' if from_then_on else ''}"
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            operation.make()
            was = operation.look()
            raised, _, hit = attempt(operation, at, from_then_on)
            if raised is not None:
                errors += 1
                assert isinstance(raised, MemoryError), (what, repr(raised))
                if isinstance(raised, kvtide.Error):
                    assert raised.code == "out_of_memory" and str(raised), what
                raised = None
                assert operation.look() == was, what
                again, _, _ = attempt(operation, 0, 0)
                assert again is None, (what, repr(again))
            else:
                results += 1
            assert operation.end() == wanted, what
            world.destroy()
            faulthandler.cancel_dump_traceback_later()
            if hit == 0:
                break
            at += step
    after = faults.kvtide_faults_alive()
    assert errors > 0
    # Python keeps blocks of its own; what a fault leaves behind it leaves behind every time.
    assert after.blocks - before.blocks < max(50, errors // 2), (before.blocks, after.blocks, errors)
    print(f"{count} allocations, every {step}: {errors} errors, {results} results")


if __name__ == "__main__":
    world = World(Path(sys.argv[2]), Path(sys.argv[3]))
    trials(world, OPERATIONS[sys.argv[1]](world))
