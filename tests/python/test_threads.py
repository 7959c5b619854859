"""Objects that several threads use at the same time: numbers can be read, calls are refused or cancelled, nothing hangs."""

import signal
import threading

import numpy as np
import pytest

import kvtide
from kvtide import _native, errors  # noqa: F401  needs the extension
from together import join, run_together, start, wait_for

IDS = [5] * 200


def while_working(work, look, threads=3):
    """Calls ``look`` in threads of its own again and again while ``work`` runs here; gives what it saw."""
    done, seen, caught = threading.Event(), [], []

    def watch():
        while not done.is_set():
            seen.append(look())

    watchers = [start(watch, caught) for _ in range(threads)]
    try:
        work()
    finally:
        done.set()
        for watcher in watchers:
            join(watcher, "a thread that looks at numbers")
    assert not caught, caught
    return seen


SESSION_NUMBERS = {
    "position": lambda s: s.position,
    "len": len,
    "context": lambda s: s.context,
    "memory": lambda s: s.memory.kv,
    "nbytes": lambda s: s.nbytes,
    "options": lambda s: s.options["context"],
    "attention_size": lambda s: s.attention_size or 0,
    "repr": lambda s: "256 tokens" in repr(s),
    "busy": lambda s: s.busy,
    "state.position": lambda s: s.state.position,
    "state.rows": lambda s: s.state.rows,
    "state.nbytes": lambda s: s.state.nbytes,
    "state.shared_nbytes": lambda s: s.state.shared_nbytes,
    "state.repr": lambda s: "of 256" in repr(s.state),
    "state.views": lambda s: s.state.views,
}


@pytest.mark.parametrize("look", SESSION_NUMBERS.values(), ids=SESSION_NUMBERS)
def test_the_numbers_of_a_session_can_be_read_while_it_reads_and_writes(model, look):
    with model.session(prefill_chunk=4, threads=2) as session:
        session.read(IDS)
        highest = look(session)
        session.clear()
        lowest = look(session)

        def work():
            for _ in range(5):
                session.clear()
                session.read(IDS[:150])
                session.complete(max_tokens=50)

        for number in while_working(work, lambda: look(session)):
            assert min(lowest, False) <= number <= max(highest, lowest, True)


def test_a_position_that_is_seen_is_that_of_whole_chunks(model):
    with model.session(prefill_chunk=8, threads=1) as session:

        def work():
            for _ in range(20):
                session.clear()
                session.read(IDS)

        assert {position % 8 for position in while_working(work, lambda: session.position)} <= {0}


def test_a_session_that_another_thread_closes_is_told_as_closed(model):
    for _ in range(100):
        session = model.session(threads=1)
        state = session.state

        def look():
            for _ in range(5):
                assert repr(session).startswith("<kvtide.Session on")
                assert repr(state).startswith("<kvtide.State")

        run_together(look, look, session.close)
        assert repr(session).endswith("closed>") and repr(state) == "<kvtide.State, closed>"


def test_the_numbers_of_stateful_models_and_shards_can_be_read_while_they_compute(models, tmp_path):
    model = kvtide.Model.load(models / "llama-mha-untied.gguf")
    stateful = kvtide.StatefulModel(model)

    def predict():
        for _ in range(5):
            stateful.reset()
            for n in range(1, 21):
                stateful.predict([5], np.ones(n))

    assert set(while_working(predict, lambda: stateful.past_length)) <= set(range(21))

    kvtide.ShardFolder.export(models / "llama-mha-untied.gguf", tmp_path / "shards", slots=64)
    folder = kvtide.ShardFolder(tmp_path / "shards", threads=2)
    attention = folder.open("attention.0")
    state = attention.make_state()
    x = np.ones((1, folder.width, 1, 1), np.float32)

    def attend():
        for _ in range(5):
            state.truncate(0)
            for n in range(60):
                cosine, sine = folder.rope_rows(0, n, 1)
                seen, written = np.full((1, 1, 1, 64), -1e4, np.float32), np.zeros((1, 1, 64, 1), np.float32)
                seen[..., : n + 1], written[:, :, n] = 0, 1
                inputs = {"x": x, "rope_cos": cosine, "rope_sin": sine, "attention_mask": seen, "write_mask": written}
                attention.predict(inputs, state)

    looks = while_working(attend, lambda: (state.position, state.nbytes, repr(state)))
    assert {position for position, _, _ in looks} <= set(range(61))


def test_progress_is_called_in_the_thread_that_reads(model):
    heard = []

    def work():
        with model.session(prefill_chunk=50) as session:
            session.read(IDS, progress=lambda *_: heard.append(threading.get_ident()))
            heard.append(threading.get_ident())

    run_together(work)
    assert len(heard) == 5 and len(set(heard)) == 1


CANCELLED = {
    "read": lambda s, began: s.read(IDS, progress=lambda *_: began.set()),
    "read_logits": lambda s, began: s.read_logits(IDS, progress=lambda *_: began.set()),
    "score": lambda s, began: s.score(IDS, progress=lambda *_: began.set()),
    "complete": lambda s, began: s.complete("ab", max_tokens=150, on_text=lambda _: began.set()),
    "generate": lambda s, began: [began.set() for _ in s.generate("ab", max_tokens=150)],
}


@pytest.mark.parametrize("name", CANCELLED)
def test_a_call_that_another_thread_cancels_ends_and_leaves_whole_chunks(model, name):
    session, stop = model.session(prefill_chunk=1, threads=2), threading.Event()
    cancelled = began = None

    def work():
        nonlocal cancelled
        while not stop.is_set():
            session.clear()
            try:
                CANCELLED[name](session, began)
            except errors.CancelledError:
                cancelled = True
                return

    # A cancel may come when the call has just ended, and then does nothing.
    for _ in range(50):
        began, cancelled = threading.Event(), name == "generate"
        thread = start(work)
        wait_for(began, f"{name} to begin")
        session.cancel()
        if name == "generate":
            stop.set()
        thread.join(0.2)
        stop.set()
        join(thread, f"{name} to end")
        stop.clear()
        if cancelled:
            break
    assert cancelled and not session.busy
    held = session.position
    assert session.read([5]) == 1 and session.position == held + 1


def test_two_generations_of_one_session_never_write_into_one_text(model):
    """Whoever comes second is told so: each token that was handed out follows from all before it."""
    for _ in range(30):
        with model.session(threads=1, slack=0) as session:
            session.read("ab")
            outcomes = []

            def write():
                pieces = []
                try:
                    for piece in session.generate(max_tokens=5):
                        pieces.append(piece.token)
                except errors.BusyError:
                    pass
                outcomes.append(pieces)

            run_together(write, write)
            written = session.tokens.tolist()[2:]
            with model.session(threads=1) as alone:
                alone.read("ab")
                expected = [piece.token for piece in alone.generate(max_tokens=len(written))] if written else []
            assert written == expected
            assert sum(len(pieces) for pieces in outcomes) == len(written)


def test_one_generation_asked_by_two_threads_writes_each_token_once(model):
    for _ in range(30):
        with model.session(threads=1) as session:
            generation = session.generate("ab", max_tokens=6)

            def ask():
                for _ in range(6):
                    try:
                        next(generation, None)
                    except errors.BusyError:
                        pass

            run_together(ask, ask, ask)
            written = session.tokens.tolist()[2:]
            with model.session(threads=1) as alone:
                expected = alone.complete("ab", max_tokens=6).tokens
            assert written == expected[: len(written)]


def test_arrays_come_and_go_in_many_threads_while_the_window_moves_on(model):
    with model.session(rolling=(4, 60), prefill_chunk=16, threads=1, context=128) as session:
        session.read(IDS[:60])
        fork = session.state.fork()
        wanted = fork.keys(0).copy()

        def look():
            for _ in range(30):
                array = fork.keys(0)
                assert np.array_equal(array, wanted)
                del array

        def go_on():
            for _ in range(10):
                session.read(IDS[:100])

        def look_at_a_busy_one():
            for _ in range(30):
                try:
                    array = session.state.keys(0)
                    assert np.isfinite(array).all()
                    del array
                except errors.BusyError:
                    pass

        calls = [look, look_at_a_busy_one, look_at_a_busy_one, go_on]
        # A state serves one caller at a time as well.
        run_together(*calls)
        assert fork.views == 0 and session.state.views == 0 and session.position == 1060


def test_sessions_and_models_are_made_forked_and_closed_in_many_threads(tiny, text):
    model = kvtide.Model.load(tiny)
    with model.session() as session:
        session.read(text)
        wanted = session.logits
        state = session.state.fork()

    def work():
        for _ in range(10):
            with model.session(threads=2, prefill_chunk=16) as one:
                one.read(text)
                with one.fork() as other:
                    np.testing.assert_array_equal(other.logits, wanted)
                    assert other.read("a") == 1
            with kvtide.Model.load(tiny, threads=2) as another, another.session(threads=1) as one:
                one.read(text)
                np.testing.assert_array_equal(one.logits, wanted)

    def restore():
        for _ in range(10):
            with model.session(threads=1) as one:
                try:
                    one.restore(state)
                except errors.BusyError:  # the other thread restores from it
                    continue
                np.testing.assert_array_equal(one.logits, wanted)

    run_together(work, work, restore, restore)
    model.close()


def test_one_tokenizer_serves_many_threads(model, text):
    long = text * 300
    wanted = model.tokenizer.encode(long)

    def work():
        for _ in range(5):
            assert model.tokenizer.encode(long) == wanted
            assert model.tokenizer.decode(wanted) == model.tokenizer.decode(wanted)

    run_together(work, work, work)


def test_ctrl_c_ends_an_export_and_leaves_no_half_of_it(models, tmp_path):
    """Comes from another thread while the main one is in the export; pytest runs tests in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are handled by the main thread")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for i in range(50):
            began = threading.Event()

            def interrupt():
                wait_for(began, "the export to begin")
                signal.raise_signal(signal.SIGINT)

            thread = start(interrupt)
            folder = tmp_path / str(i)
            try:
                began.set()
                kvtide.ShardFolder.export(models / "llama-mha-untied.gguf", folder, slots=64)
                join(thread, "the interrupting thread")
            except KeyboardInterrupt:
                join(thread, "the interrupting thread")
                if not folder.exists():
                    return
        pytest.fail("no export of 50 was interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
