"""The small program, which `make demo` builds: what it has is the same, and of the rest it says how to get it."""

import os
import subprocess
import unittest

from program import LLAMA, PROGRAM, TEXT, TIMEOUT_S, environment, kvtide

SMALL = os.environ.get("KVTIDE_SMALL", os.path.join(os.path.dirname(os.path.realpath(PROGRAM)), "kvtide_small"))
LEFT_OUT = {"serve": ("-m", LLAMA), "ppl": ("-m", LLAMA, "-f", TEXT), "plan": ("-m", LLAMA), "coreml": ("inspect", LLAMA), "validate": (LLAMA,), "shard": ("run", "-m", LLAMA)}


def small(*words):
    return subprocess.run([SMALL, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S, env=environment())


class SmallProgramTest(unittest.TestCase):
    def test_what_is_left_out_says_how_to_get_it(self):
        for command, words in LEFT_OUT.items():
            with self.subTest(command):
                outcome = small(command, *words)
                self.assertEqual(outcome.returncode, 5)
                self.assertEqual(outcome.stderr, f"kvtide: kvtide {command}: this program was built without it; "
                                                 "`make build` builds all\n")  # fmt: skip

    def test_its_help_lists_what_it_has_and_names_what_it_has_not(self):
        lines = small("--help").stdout.splitlines()
        self.assertLessEqual(set(lines) - {line for line in lines if line.startswith("`make build` adds: ")},
                             set(kvtide("--help").text.splitlines()))  # fmt: skip
        for command in LEFT_OUT:
            self.assertFalse([line for line in lines if line.startswith(f"  {command} ")])
            self.assertTrue([line for line in lines if line.startswith("`make build` adds: ") and command in line])

    def test_the_rest_is_the_same(self):
        words = ("run", "-m", LLAMA, "-p", "ab", "-n", "8")
        self.assertEqual(small(*words).stdout, kvtide(*words).text)
        self.assertEqual(small("inspect", LLAMA).stdout, kvtide("inspect", LLAMA).text)


if __name__ == "__main__":
    unittest.main()
