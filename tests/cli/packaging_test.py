"""packaging/: the flags that the unit and the container start the program with are flags that it has, and it starts."""

import json
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from program import LLAMA, PROGRAM, TIMEOUT_S, kvtide, read_until, start

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"


def settings():
    lines = (PACKAGING / "kvtide.default").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def unit_words():
    (line,) = re.findall(r"^ExecStart=(.*)$", (PACKAGING / "kvtide.service").read_text(), re.M)
    return shlex.split(re.sub(r"\$\{(\w+)\}", lambda found: settings()[found.group(1)], line))


def container_words():
    (line,) = re.findall(r"^ENTRYPOINT (.*)$", (PACKAGING / "Dockerfile").read_text(), re.M)
    return json.loads(line)


class PackagingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kvtide-packaging-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_flags_exist(self):
        known = kvtide("serve", "--help").text
        for words in (unit_words(), container_words()):
            self.assertEqual(words[:2], ["/usr/bin/kvtide", "serve"])
            for flag in [word for word in words[2:] if word.startswith("-")]:
                self.assertRegex(known, rf"(^|\s){flag}\b", flag)

    def test_they_start(self):
        for words in (unit_words(), container_words()):
            words = [word.replace("%C", self.folder).replace("%S", self.folder) for word in words[2:]]
            words = [self.folder + word if word.startswith(("/cache", "/slots")) else word for word in words]
            words[words.index("--port") + 1] = "0"
            words = words[2:] if words[0] == "-m" else words
            process = start("serve", "-m", LLAMA, "--api-key", "secret", *words)
            read_until(process, process.stderr, lambda text: b"; Ctrl-C" in text, "the address")
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, 0)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "needs systemd-analyze")
    def test_systemd_takes_the_unit(self):
        unit = Path(self.folder) / "kvtide.service"
        program = shutil.which(PROGRAM) or PROGRAM
        unit.write_text((PACKAGING / "kvtide.service").read_text().replace("/usr/bin/kvtide", str(Path(program).resolve())))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
