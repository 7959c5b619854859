"""Wrong use raises Python exceptions, and the object is as usable afterwards as before. Never a signal."""

import copy
import pickle

import numpy as np
import pytest

import kvtide
from kvtide import _native, errors
from together import run_together

IDS = [
    (None, TypeError),
    (5, TypeError),
    (b"bytes", TypeError),
    ({1: 2}, TypeError),
    ({1, 2}, TypeError),
    (["a"], TypeError),
    ([1.0], TypeError),
    ([True], TypeError),
    ([[1]], TypeError),
    ([[1], [2, 3]], TypeError),
    ([None], TypeError),
    (np.zeros(3), TypeError),
    (np.zeros((2, 2), np.int32), TypeError),
    (np.int32(4), TypeError),
    (np.zeros(2, "M8[s]"), TypeError),
    ([64], errors.InvalidArgumentError),
    ([-1], errors.InvalidArgumentError),
    ([2**31], errors.InvalidArgumentError),
    ([2**63], errors.InvalidArgumentError),
    ([2**70], errors.InvalidArgumentError),
    (np.array([2**40]), errors.InvalidArgumentError),
    ("half a pair: \ud800", errors.BadTextError),
]


@pytest.mark.parametrize("call", ["read", "read_logits", "score", "generate", "complete"])
@pytest.mark.parametrize(("ids", "error"), IDS, ids=[repr(ids)[:24] for ids, _ in IDS])
def test_tokens_that_are_none_are_refused_and_nothing_is_read(session, call, ids, error):
    if isinstance(ids, list) and ids[0] == "a" and call in ("generate", "complete"):
        pytest.skip("a list of texts is several prompts")
    if ids is None and call in ("generate", "complete"):
        error = errors.InvalidArgumentError  # no prompt, and nothing was read
    with pytest.raises(error):
        result = getattr(session, call)(ids)
        next(result)
    assert session.position == 0 and not session.busy
    assert session.read("ab") == 2


SESSION_OPTIONS = [
    ({"context": 0}, ValueError),
    ({"context": -5}, ValueError),
    ({"context": 2**40}, ValueError),
    ({"context": 2**80}, ValueError),
    ({"context": 1.5}, TypeError),
    ({"context": "4k"}, TypeError),
    ({"context": True}, TypeError),
    ({"key_type": "f64"}, ValueError),
    ({"key_type": None}, TypeError),
    ({"value_type": "F16"}, ValueError),
    ({"threads": 0}, ValueError),
    ({"threads": 100000}, ValueError),
    ({"threads": 2.0}, TypeError),
    ({"prefill_chunk": 0}, ValueError),
    ({"prefill_chunk": 2**40}, ValueError),
    ({"kernels": "mmx"}, kvtide.Error),
    ({"kernels": 512}, TypeError),
    ({"no_such_option": 1}, TypeError),
    ({"rolling": 5}, TypeError),
    ({"rolling": (1, 2, 3)}, TypeError),
    ({"rolling": (-1, 5)}, ValueError),
    ({"rolling": (4, 0)}, ValueError),
    ({"rolling": (4, 1000)}, ValueError),
    ({"attention_size": 0}, ValueError),
    ({"attention_size": 1.0}, TypeError),
    ({"slack": -1}, ValueError),
    ({"slack": 2**60}, ValueError),
]


@pytest.mark.parametrize(("options", "error"), SESSION_OPTIONS, ids=str)
def test_options_that_make_no_sense_make_no_session(model, options, error):
    with pytest.raises(error):
        model.session(**options)


@pytest.mark.parametrize("what", [None, "model.gguf", object(), 3])
def test_a_session_needs_a_model(what):
    with pytest.raises(TypeError):
        kvtide.Session(what)


GENERATE_OPTIONS = [
    ({"max_tokens": -2}, ValueError),
    ({"max_tokens": 1.5}, TypeError),
    ({"max_tokens": 2**80}, ValueError),
    ({"temperature": -1}, ValueError),
    ({"temperature": float("nan")}, ValueError),
    ({"temperature": float("inf")}, ValueError),
    ({"temperature": "hot"}, TypeError),
    ({"temperature": 10**400}, ValueError),
    ({"top_k": -1}, ValueError),
    ({"top_k": 2**40}, ValueError),
    ({"top_p": 0}, ValueError),
    ({"top_p": 1.5}, ValueError),
    ({"min_p": 2}, ValueError),
    ({"repeat_penalty": 0}, ValueError),
    ({"repeat_last": -1}, ValueError),
    ({"seed": -1}, ValueError),
    ({"seed": 2**64}, ValueError),
    ({"seed": "x"}, TypeError),
    ({"stop": 3}, TypeError),
    ({"stop": [b"x"]}, TypeError),
    ({"stop": ["\udfff"]}, ValueError),
    ({"stop_tokens": ["x"]}, TypeError),
    ({"stop_tokens": [2**40]}, ValueError),
    ({"history": [1.5]}, TypeError),
    ({"progress": 3}, TypeError),
]


@pytest.mark.parametrize("call", ["generate", "complete"])
@pytest.mark.parametrize(("options", "error"), GENERATE_OPTIONS, ids=str)
def test_options_that_make_no_sense_are_refused_before_the_prompt_is_read(session, call, options, error):
    with pytest.raises(error):
        getattr(session, call)("ab", **options)
    assert session.position == 0


@pytest.mark.parametrize("call", ["generate", "complete"])
def test_a_history_of_unknown_tokens_is_refused(session, call):
    with pytest.raises(errors.InvalidArgumentError, match="outside the vocabulary"):
        next(iter(getattr(session, call)("ab", history=[64], repeat_penalty=2.0)))
    session.clear()
    with pytest.raises(errors.InvalidArgumentError):
        next(iter(getattr(session, call)("ab", history=[-1], repeat_penalty=2.0)))


def test_on_text_has_to_be_callable(session):
    with pytest.raises(TypeError):
        session.complete("ab", on_text="print")
    with pytest.raises(TypeError):
        session.read("ab", progress="print")


PATHS = [
    (None, TypeError),
    (3, TypeError),
    ("", errors.NotFoundError),
    ("a\0b", errors.InvalidArgumentError),
    (".", errors.BadFormatError),
    ("no/such/file.gguf", FileNotFoundError),
]


@pytest.mark.parametrize(("path", "error"), PATHS, ids=repr)
def test_what_is_no_model_file_is_refused(path, error):
    with pytest.raises(error):
        kvtide.Model.load(path)


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": -1}, {"threads": 10**6}])
def test_thread_numbers_that_make_no_sense_load_nothing(tiny, options):
    with pytest.raises(ValueError):
        kvtide.Model.load(tiny, **options)


@pytest.mark.parametrize("keep", [0, 3, 100, 4000, -1])
def test_a_truncated_model_is_a_bad_format(tmp_path, tiny, keep):
    path = tmp_path / "short.gguf"
    path.write_bytes(tiny.read_bytes()[:keep])
    with pytest.raises(errors.BadFormatError, match="short.gguf"):
        kvtide.Model.load(path)


MODEL_USES = {
    "name": lambda m: m.name,
    "path": lambda m: m.path,
    "architecture": lambda m: m.architecture,
    "context_length": lambda m: m.context_length,
    "vocabulary": lambda m: m.vocabulary,
    "layers": lambda m: m.layers,
    "parameters": lambda m: m.parameters,
    "nbytes": lambda m: m.nbytes,
    "chat_template": lambda m: m.chat_template,
    "session": lambda m: m.session(),
    "encode": lambda m: m.tokenizer.encode("a"),
    "decode": lambda m: m.tokenizer.decode([5]),
    "piece": lambda m: m.tokenizer.piece(5),
    "find": lambda m: m.tokenizer.find("a"),
    "bos": lambda m: m.tokenizer.bos,
    "len": lambda m: len(m.tokenizer),
    "encode_chat": lambda m: m.encode_chat([("user", "a")], template="chatml"),
    "with": lambda m: m.__enter__(),
}


@pytest.mark.parametrize("use", MODEL_USES.values(), ids=MODEL_USES)
def test_a_closed_model_says_so(tiny, use):
    model = kvtide.Model.load(tiny)
    model.close()
    with pytest.raises(errors.ClosedError, match="closed"):
        use(model)


SESSION_USES = {
    "read": lambda s: s.read("a"),
    "read ids": lambda s: s.read([5]),
    "read nothing": lambda s: s.read([]),
    "read_logits": lambda s: s.read_logits([5]),
    "score": lambda s: s.score([5]),
    "score nothing": lambda s: s.score([]),
    "logits": lambda s: s.logits,
    "log_probabilities": lambda s: s.log_probabilities(),
    "generate": lambda s: s.generate("a"),
    "generate on": lambda s: next(s.generate()),
    "complete": lambda s: s.complete("a"),
    "complete on": lambda s: s.complete(),
    "clear": lambda s: s.clear(),
    "position": lambda s: s.position,
    "len": len,
    "context": lambda s: s.context,
    "memory": lambda s: s.memory,
    "nbytes": lambda s: s.nbytes,
    "options": lambda s: s.options,
    "with": lambda s: s.__enter__(),
    "tokens": lambda s: s.tokens,
    "iteration": lambda s: list(s),
    "state": lambda s: s.state,
    "attention_size": lambda s: s.attention_size,
    "plan": lambda s: s.plan("expand", 500),
    "apply": lambda s: s.apply("expand", 500),
    "fork": lambda s: s.fork(),
    "save": lambda s: s.save("never-written.kv"),
    "load": lambda s: s.load("never-read.kv"),
    "restore": lambda s: s.restore(kvtide.State(layers=1, kv_heads=1, head_dim=32, capacity=4)),
}


@pytest.mark.parametrize("use", SESSION_USES.values(), ids=SESSION_USES)
def test_a_closed_session_says_so(session, use):
    session.read("ab")
    session.close()
    session.close()
    session.cancel()
    with pytest.raises(errors.ClosedError, match="closed"):
        use(session)


def test_a_generation_whose_session_was_closed_says_so(session):
    generation = session.generate("ab")
    next(generation)
    session.close()
    with pytest.raises(errors.ClosedError):
        next(generation)


BUSY_USES = {name: use for name, use in SESSION_USES.items() if name not in ("position", "len", "context", "memory", "nbytes", "options", "with", "score nothing", "generate on", "complete on", "state", "attention_size")}
BUSY_USES["close"] = lambda s: s.close()
BUSY_USES["another thread"] = lambda s: run_together(lambda: s.read("a"), awaited="a call in another thread")


@pytest.mark.parametrize("use", BUSY_USES.values(), ids=BUSY_USES)
def test_a_session_in_the_middle_of_a_call_refuses_another(session, use):
    caught = []

    def progress(done, total):
        with pytest.raises(errors.BusyError):
            use(session)
        caught.append(repr(session))

    assert session.read("abc", progress=progress) == 3
    assert len(caught) == 1 and "3 of 256 tokens" in caught[0] and "busy" in caught[0]
    assert session.position == 3 and not session.busy


def test_a_session_refuses_another_call_while_it_writes(session):
    caught = []

    def on_text(text):
        with pytest.raises(errors.BusyError):
            session.read("a")
        caught.append(session.position)

    session.complete("ab", max_tokens=3, on_text=on_text)
    assert caught[:2] == [2, 3] and session.position == 5  # a token without text is not announced


def test_closing_the_model_in_a_callback_ends_nothing(tiny):
    model = kvtide.Model.load(tiny)
    with model.session(prefill_chunk=4) as session:
        assert session.read([5] * 12, progress=lambda *_: model.close()) == 12


def test_deleting_everything_in_a_callback_ends_nothing(tiny):
    held = [kvtide.Model.load(tiny).session(prefill_chunk=4)]
    read = held[0].read
    assert read([5] * 12, progress=lambda *_: held.clear()) == 12


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_holds_memory_can_not_be_copied_by_accident(model, session, how):
    for thing in (model._native, session._native):
        with pytest.raises((TypeError, pickle.PicklingError)):
            how(thing)


TOKENIZER_USES = [
    (lambda t: t.encode(None), TypeError),
    (lambda t: t.encode(b"a"), TypeError),
    (lambda t: t.encode("\ud83d"), errors.BadTextError),
    (lambda t: t.decode("a"), TypeError),
    (lambda t: t.decode([64]), errors.InvalidArgumentError),
    (lambda t: t.decode([-1]), errors.InvalidArgumentError),
    (lambda t: t.decode([[1]]), TypeError),
    (lambda t: t.piece(64), errors.InvalidArgumentError),
    (lambda t: t.piece(-1), errors.InvalidArgumentError),
    (lambda t: t.piece(2**40), errors.InvalidArgumentError),
    (lambda t: t.piece("a"), TypeError),
    (lambda t: t.find(3), TypeError),
    (lambda t: t.ends_text(2.5), TypeError),
]


@pytest.mark.parametrize(("use", "error"), TOKENIZER_USES)
def test_what_is_no_text_or_token_is_refused(model, use, error):
    with pytest.raises(error):
        use(model.tokenizer)


CHATS = [
    ("hi", {}, TypeError),
    ([("user",)], {}, TypeError),
    ([{"role": "user"}], {}, TypeError),
    ([("user", 3)], {}, TypeError),
    ([{"role": "user", "content": "hi", "more": {1: 2}}], {}, TypeError),
    ([{"role": "user", "content": "hi", "more": float("nan")}], {}, ValueError),
    ([("user", "hi")], {"tools": [object]}, TypeError),
    ([("user", "hi")], {"template": "{{ raise_exception('no') }}"}, ValueError),
    ([("user", "hi")], {"template": 3}, TypeError),
    ([("robot", "hi")], {}, ValueError),
    ([("user", "\ud800")], {}, errors.BadTextError),
]


@pytest.mark.parametrize(("messages", "options", "error"), CHATS, ids=str)
def test_what_is_no_conversation_is_refused(model, messages, options, error):
    with pytest.raises(error):
        model.encode_chat(messages, **{"template": "chatml", **options})


NATIVE_USES = {
    "rows of another shape": lambda s: s.read_logits(np.zeros(2, np.int32), np.zeros((2, 3), np.float32), None),
    "rows of another type": lambda s: s.read_logits(np.zeros(2, np.int32), np.zeros((2, 64)), None),
    "rows that are read only": lambda s: s.read_logits(np.zeros(2, np.int32), frozen((2, 64), np.float32), None),
    "scores of another length": lambda s: s.score(np.zeros(2, np.int32), np.zeros(3), None),
    "scores of another type": lambda s: s.score(np.zeros(2, np.int32), np.zeros(2, np.float32), None),
    "scores of unknown tokens": lambda s: s.score(np.full(2, 99, np.int32), np.zeros(2), None),
    "ids of another type": lambda s: s.read(np.zeros(2, np.int64), None),
    "ids with gaps": lambda s: s.read(np.zeros(8, np.int32)[::2], None),
    "one unknown token": lambda s: s.advance(64, s.changes),
    "a negative token": lambda s: s.advance(-1, s.changes),
    "the probability of an unknown token": lambda s: s.log_probability(64),
    "no sampler": lambda s: s.pick(None, []),
    "no ids": lambda s: s.read(None, None),
}


def frozen(shape, dtype):
    array = np.zeros(shape, dtype)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("use", NATIVE_USES.values(), ids=NATIVE_USES)
def test_even_the_native_module_only_raises(session, use):
    with pytest.raises((TypeError, ValueError)):
        use(session._native)
    assert session.position == 0


MOVES = [
    (np.zeros(8, np.uint8), (1, 1, 4, 1), np.zeros(8, np.uint8), (1, 1, 8, 1), 4, b"\0\0"),
    (np.zeros(8, np.uint8), (1, 4, 1), np.zeros(8, np.uint8), (1, 1, 8, 1), 4, b"\0"),
    (np.zeros(4, np.uint8), (1, 1, 4, 1), np.zeros(8, np.uint8), (1, 1, 8, 1), 5, b"\0"),
    (np.zeros(4, np.uint8), (1, 1, 4, 1), np.zeros(8, np.uint8), (1, 1, 8, 1), -1, b"\0"),
    (np.zeros(4, np.uint8), (1, 1, 4, 1), np.zeros(8, np.uint8), (1, 1, 8, 1), 4, b""),
    (np.zeros(4, np.uint8), (1, 1, 4, 1), np.zeros(8, np.uint8), (1, 1, 1 << 62, 4), 4, b"\0"),
    (np.zeros(4, np.int8), (1, 1, 4, 1), np.zeros(8, np.uint8), (1, 1, 8, 1), 4, b"\0"),
    (np.zeros(4, np.uint8), (1, 1, 4, 1), frozen(8, np.uint8), (1, 1, 8, 1), 4, b"\0"),
]


@pytest.mark.parametrize("args", MOVES, ids=range(len(MOVES)))
def test_the_native_copy_checks_what_it_is_given(args):
    with pytest.raises((TypeError, ValueError)):
        _native.move_dense(*args, False, False)
