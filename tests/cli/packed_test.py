"""Packed weights as users meet them: kvtide pack, the cache folder, what is said about them."""

import os
import subprocess
import unittest
from pathlib import Path

import word_model
from program import LLAMA, PROGRAM, TIMEOUT_S, Outcome, ProgramTest, environment

USAGE, NOT_FOUND, IO = 2, 3, 8


class PackedWeights(ProgramTest):
    def run_in(self, *words, **variables):
        more = {"XDG_CACHE_HOME": str(self.folder / "cache")} | variables
        done = subprocess.run([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=TIMEOUT_S, env=environment(**more))  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8"))

    def hash_of(self, model, *words, **variables):
        outcome = self.assert_fine(self.run_in("run", "-m", model, "-p", "the tide", "-n", 4, "--temp", 0, "--logits-hash", *words, **variables))
        return outcome.out.decode("latin-1") + outcome.err.splitlines()[-1], outcome.err

    def packed(self, place="cache/kvtide/weights"):
        return sorted(path for path in (self.folder / place).glob("*") if path.suffix == ".packed")

    def test_the_first_start_keeps_them_and_says_so_and_the_second_is_silent(self):
        model = word_model.write(self.folder / "words.gguf", word_model.Shape(512, 2048, 4, 2, 64, 6), word_model.eight_bits)
        self.assertGreater(model.stat().st_size, 16 << 20)
        plain, _ = self.hash_of(model, "--no-cache")
        self.assertEqual(self.packed(), [])
        first, said = self.hash_of(model)
        (file,) = self.packed()
        self.assertIn(f"note: the packed weights are kept in {file} (", said)
        second, said = self.hash_of(model)
        self.assertNotIn("packed weights", said)
        self.assertEqual((first, second), (plain, plain))
        file.write_bytes(file.read_bytes()[:-1])
        broken, said = self.hash_of(model)
        self.assertIn(f"note: {file} is made anew: ", said)
        self.assertEqual(broken, plain)
        verified, said = self.hash_of(model, "--packed-verify")
        self.assertEqual(verified, plain)
        self.assertNotIn("note: ", said)
        self.assertIn("the limit of the cache is 1 MiB", self.hash_of(model, "--packed-limit", "1M", XDG_CACHE_HOME=str(self.folder / "other"))[1])

    def test_a_small_model_is_packed_each_time(self):
        self.hash_of(LLAMA)
        self.assertEqual(self.packed(), [])

    def test_pack_fills_the_cache_folder_or_a_file(self):
        model = self.file("model.gguf", LLAMA.read_bytes())
        plain, _ = self.hash_of(model, "--no-cache")
        outcome = self.assert_fine(self.run_in("pack", model))
        (file,) = self.packed()
        self.assertEqual(outcome.text, f"{file}\n")
        self.assertIn("made in", outcome.err)
        self.assertIn("which were there", self.assert_fine(self.run_in("pack", model)).err)

        named = self.folder / "named"
        outcome = self.assert_fine(self.run_in("pack", model, "-o", named, "--no-cache"))
        self.assertEqual(outcome.text, f"{named}\n")
        self.assertEqual(self.hash_of(model, "--packed", named)[0], plain)
        os.utime(model)  # a copy has another time
        copied, said = self.hash_of(model, "--packed", named, "--no-cache")
        self.assertEqual(copied, plain)
        self.assertNotIn("note: ", said)
        _, said = self.hash_of(LLAMA.parent / "qwen2-biases.gguf", "--packed", named)
        self.assertIn(f"note: {named} is not used: it belongs to other weights\n", said)
        beside = Path(f"{model}.packed")
        self.assert_fine(self.run_in("pack", "-m", model, "-o", beside))
        self.assertEqual(self.hash_of(model, "--no-cache")[0], plain)
        beside.write_bytes(b"something else")
        answer, said = self.hash_of(model)
        self.assertEqual(answer, plain)
        self.assertIn(f"note: {beside} is not used: ", said)
        self.assertEqual(beside.read_bytes(), b"something else")

    def test_pack_says_what_is_missing_or_wrong(self):
        self.assert_refused(self.run_in("pack"), USAGE, "MODEL is missing")
        self.assert_refused(self.run_in("pack", LLAMA, "--no-cache"), USAGE, "-o FILE")
        self.assert_refused(self.run_in("pack", self.folder / "absent.gguf"), NOT_FOUND, "absent.gguf")
        self.assert_refused(self.run_in("pack", LLAMA, "-o", LLAMA), USAGE, "both are")
        self.assert_refused(self.run_in("pack", LLAMA, "-o", self.folder / "no" / "file"), IO, "cannot create")
        self.assert_refused(self.run_in("pack", LLAMA, XDG_CACHE_HOME=str(self.file("file", b"x"))), IO, "are not kept")

    def test_a_cache_that_cannot_be_made_only_costs_time_and_is_told(self):
        model = word_model.write(self.folder / "words.gguf", word_model.Shape(512, 2048, 4, 2, 64, 6), word_model.eight_bits)
        plain, _ = self.hash_of(model, "--no-cache")
        answer, said = self.hash_of(model, XDG_CACHE_HOME=str(self.file("file", b"x")))
        self.assertEqual(answer, plain)
        self.assertIn("note: the packed weights are not kept: ", said)


if __name__ == "__main__":
    unittest.main()
