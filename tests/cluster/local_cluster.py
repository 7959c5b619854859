"""Ray on this machine as several nodes, each a process tree of its own that can be killed; and single processes beside it."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import httpx
import psutil

HERE = Path(__file__).parent
# HAProxy reaches replicas by the address of their node.
HOST = "0.0.0.0" if os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") == "1" else "127.0.0.1"
OBJECTS = 80 << 20  # bytes of a node's object store; nothing of ours goes through it


def free_port():
    """Below those that the system gives to connections: Ray opens many before the port is taken."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port


def wait_for(url, seconds=60.0):
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(url, timeout=2.0)
        if time.monotonic() > end:
            raise TimeoutError(url)
        time.sleep(0.1)


class StoreServer:
    """The stand-in of S3, killed and started again at the same port."""

    def __init__(self, folder):
        self.folder, self.port = Path(folder), free_port()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kills = 0
        self.start()

    @property
    def pid(self):
        return self._process.pid

    def start(self):
        self._process = subprocess.Popen([sys.executable, str(HERE / "s3_stand_in.py"), str(self.folder), str(self.port)])
        wait_for(f"http://127.0.0.1:{self.port}/bucket")

    def kill(self, away=1.0):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.kills += 1
        time.sleep(away)
        self.start()

    def close(self):
        self._process.kill()
        self._process.wait()


class SingleServer:
    """kvtide.serve in one process: what the others are compared with."""

    def __init__(self, model, threads, budget, parallel=8):
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "single.py"), str(model), str(threads), str(budget), str(self.port), str(parallel)]
        )
        wait_for(self.base + "/health")
        self.pid = self._process.pid

    def close(self):
        self._process.terminate()
        self._process.wait(20)


class LocalCluster:
    """A head that holds Serve's controller and proxy, and nodes with one replica each, of ``cores`` threads."""

    def __init__(self, nodes, *, environment, cores=1):
        for name, value in environment.items():
            os.environ[name] = value
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray gives its workers less of a busy machine than it has itself.
        os.environ.setdefault("RAY_worker_niceness", "0")
        # Five seconds, otherwise, in which a machine that has other work starts no process.
        os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
        import ray
        from ray.cluster_utils import Cluster

        self._ray = ray
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        # The head's one unit is the controller's and the proxy's, which want none.
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": OBJECTS, "include_dashboard": False},
        )
        self._cores = cores
        self._added = 0
        self._nodes = [self._add() for _ in range(nodes)]
        self._random = random.Random(7)
        self.kills = {"replica": 0, "node": 0}
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level="ERROR")

    def _add(self):
        self._added += 1
        # An address of its own, as on a machine of its own: HAProxy asks the entrance of its node.
        address = f"127.0.0.{1 + self._added}"
        # Ray sets handlers of signals for a node, which only the main thread may.
        with mock.patch("signal.signal"):
            return self._cluster.add_node(num_cpus=self._cores, object_store_memory=OBJECTS, node_ip_address=address)

    def deploy(self, application, seconds=180.0):
        from ray import serve

        # A minute, otherwise, which is short for machines that have other work.
        with mock.patch("ray.serve._private.api.HTTP_PROXY_TIMEOUT", seconds):
            serve.start(http_options={"host": HOST, "port": self.port, "location": "HeadOnly"})
        serve.run(application, name="kvtide", route_prefix="/")
        wait_for(self.base + "/health", seconds)

    def replicas(self):
        """Processes of replicas, all of them of this cluster."""
        out = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "ServeReplica" in " ".join(process.cmdline()) or "ServeReplica" in process.name():
                    out.append(process)
        return out

    def kill_replica(self):
        replicas = self.replicas()
        if replicas:
            self._random.choice(replicas).kill()
            self.kills["replica"] += 1

    def kill_node(self):
        node = self._random.choice(self._nodes)
        for process in self._tree(node):
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(Exception):
            self._cluster.remove_node(node, allow_graceful=False)
        self._nodes.remove(node)
        self._nodes.append(self._add())
        self.kills["node"] += 1

    def _tree(self, node):
        out = []
        for processes in node.all_processes.values():
            for one in processes:
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(one.process.pid)
                    out += [*process.children(recursive=True), process]
        return out

    def close(self):
        from ray import serve

        with contextlib.suppress(Exception):
            serve.shutdown()
        with contextlib.suppress(Exception):
            self._ray.shutdown()
        self._cluster.shutdown()
