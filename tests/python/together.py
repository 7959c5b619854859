"""Calls that run at the same time, each in a thread of its own, for tests; and waiting that ends."""

import threading

LIMIT_S = 120  # of a hang: nothing that works comes near it


def start(call, caught=None):
    """A daemon thread; what its call raises is added to ``caught``."""

    def work():
        try:
            call()
        except BaseException as error:
            if caught is None:
                raise
            caught.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def join(thread, awaited):
    thread.join(LIMIT_S)
    assert not thread.is_alive(), f"waited {LIMIT_S} s for {awaited}"


def wait_for(event, awaited):
    assert event.wait(LIMIT_S), f"waited {LIMIT_S} s for {awaited}"


def run_together(*calls, awaited="the threads of the test"):
    """Runs the calls at the same time and raises the first exception that one of them raised."""
    caught, gate = [], threading.Barrier(len(calls))

    def through(call):
        gate.wait(LIMIT_S)
        call()

    threads = [start(lambda call=call: through(call), caught) for call in calls]
    for thread in threads:
        join(thread, awaited)
    if caught:
        raise caught[0]
