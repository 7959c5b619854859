"""What tools/measure_kvpress.py makes of answers that are there: without torch, kvpress or a model."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

from program import ProgramTest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import measure_kvpress as tool  # noqa: E402


def text_of(task, number, full=1.0, nothing=4.0, memory=1.5):
    return {"task": task, "ctx": 600, "sample": number, "tokens": [1, 2, 3], "question": 1, "answers": [[2, 3]],
            "nothing": {"nll": nothing, "right": 0.0}, "full": {"nll": full, "right": 1.0},
            "memories": [{"memory": "4x", "nll": memory, "right": 0.5, "kv_bytes": 10}]}  # fmt: skip


def pressed(number, nll=2.0, full=1.0):
    return {"sample": number, "full": {"nll": full, "right": 1.0},
            "presses": [{"press": "SnapKV", "rows": "f16", "ratio": 4, "nll": nll, "right": 0.0}]}  # fmt: skip


class Intervals(unittest.TestCase):
    def test_groups_weigh_alike_and_the_interval_holds_the_mean(self):
        self.assertEqual(tool.interval([[1.0, 1.0, 1.0, 1.0], [3.0, 3.0]]), (2.0, 2.0, 2.0))
        self.assertEqual(tool.interval([[1.0, 1.0, 1.0, 1.0], [3.0]]), (2.0, None, None))
        mean, low, high = tool.interval([[0.0, 1.0, 2.0, 3.0]])
        self.assertTrue(0 < low < mean == 1.5 < high < 3)

    def test_floor_is_where_the_full_cache_is_not_clearly_ahead_of_no_text(self):
        self.assertFalse(tool.is_floor([text_of("a", n) for n in range(3)]))
        self.assertTrue(tool.is_floor([text_of("a", n, nothing=1.4) for n in range(3)]))
        self.assertTrue(tool.is_floor([text_of("a", 0, nothing=9.0), text_of("a", 1, nothing=1.0)]))


class Folder(ProgramTest):
    def run_tool(self, *words):
        command = [sys.executable, "-B", TOOLS / "measure_kvpress.py", "-m", "words.gguf", "-f", "none", "--out", self.folder / "out",
                   "--ctx", "600", "--tasks", "a,b", "--ratios", "4,8", "--samples", "3", "--batch", "2", "--table-only", *words]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def write(self, task, first, texts, presses, end=""):
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        stem = f"words-600-{task}-{first}-{len(texts)}-by-4-8"
        (out / f"{stem}.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts))
        (out / f"{stem}.presses").write_text("".join(json.dumps(p) + "\n" for p in presses) + end)

    def test_what_is_there_becomes_tables(self):
        self.write("a", 0, [text_of("a", 0), text_of("a", 1)], [pressed(0), pressed(1)])
        self.write("a", 2, [text_of("a", 2)], [], end='{"sample": 2, "fu')  # interrupted
        self.write("b", 0, [text_of("b", 0, nothing=1.0), text_of("b", 1, nothing=1.0)], [])
        outcome = self.run_tool("--markdown", str(self.folder / "table.md"))
        self.assertEqual(outcome.returncode, 0, outcome.stderr)
        self.assertIn("600 tokens, 2 texts, mean of 1 tasks. Full cache: 1.00 nats a token, 100% right.", outcome.stdout)
        self.assertIn("| kvtide |  | 4x | +0.50 (+0.50 to +0.50) |  | 50% |", outcome.stdout)
        self.assertIn("| SnapKV | f16 | 4x | +1.00 (+1.00 to +1.00) | +0.50 (+0.50 to +0.50) | 0% |", outcome.stdout)
        self.assertIn("| kvtide |  | 8x | too few bytes | | |", outcome.stdout)
        self.assertIn("Floor, left out: b at 600.", outcome.stdout)
        self.assertTrue(outcome.stdout.startswith((self.folder / "table.md").read_text()))

    def test_full_caches_that_disagree_are_a_failure(self):
        self.write("a", 0, [text_of("a", 0), text_of("a", 1)], [pressed(0, full=1.05), pressed(1)])
        outcome = self.run_tool()
        self.assertEqual(outcome.returncode, 1)
        self.assertIn("0.02500 nats apart on average, 0.05000 at most", outcome.stdout)

    def test_a_folder_without_answers_says_so(self):
        self.assertIn("nothing was measured", self.run_tool().stderr)


if __name__ == "__main__":
    unittest.main()
