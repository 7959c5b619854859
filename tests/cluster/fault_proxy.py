"""A proxy of TCP connections that delays, drops and partitions, in a thread of its own.

Modes: ``pass``; ``delay``: every piece comes late; ``drop``: connections break in the middle; ``lose``: requests arrive and
their answers do not; ``partition``: nothing passes and nothing breaks.
"""

import asyncio
import random
import threading


class FaultProxy:
    def __init__(self, target_port, seed=1):
        self.mode = "pass"
        self.faults = 0
        self._target = target_port
        self._random = random.Random(seed)
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        await asyncio.wait(
            [
                asyncio.ensure_future(self._pump(reader, to_writer, answers=False)),
                asyncio.ensure_future(self._pump(to_reader, writer, answers=True)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for one in (writer, to_writer):
            one.close()

    async def _pump(self, reader, writer, *, answers):
        try:
            while data := await reader.read(65536):
                if self.mode == "delay":
                    self.faults += 1
                    await asyncio.sleep(self._random.uniform(0.0, 0.4))
                elif self.mode == "drop" and self._random.random() < 0.3:
                    self.faults += 1
                    return
                elif self.mode == "lose" and answers and self._random.random() < 0.5:
                    self.faults += 1
                    return
                while self.mode == "partition":
                    self.faults += 1
                    await asyncio.sleep(0.1)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
