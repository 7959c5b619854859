"""Snapshots from the command line: a memory that is saved, loaded, interrupted and gone on with."""

import json
import os
import re
import resource
import subprocess
import time
import unittest

from program import (LLAMA, MODELS, PROGRAM, TEXT, TIMEOUT_S, ProgramTest, environment, interrupt, kvtide, read_until, start,
                     wait_for_line)  # fmt: skip

PROMPT_TOKENS = 80
USAGE, BAD_FORMAT, IO, CANCELLED = 2, 4, 8, 130
GEMMA = MODELS / "gemma3-window.gguf"


class SnapshotTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "state.kv"

    def report(self, *words, model=LLAMA, status=0):
        path = self.folder / "report.json"
        outcome = kvtide("run", "-m", model, *words, "--report", path)
        self.assertEqual(outcome.status, status, outcome.err)
        return json.loads(path.read_text("utf-8"))

    def save(self, *words, model=LLAMA, path=None):
        return self.report("-f", TEXT, "-n", 0, "--save-state", path or self.state, *words, model=model)

    def info(self, path=None):
        return self.assert_fine(kvtide("state", "info", path or self.state, "--json")).json


class Continuing(SnapshotTest):
    def test_a_loaded_memory_goes_on_with_the_same_bits(self):
        for model, words in [(LLAMA, []), (LLAMA, ["-ctk", "f32", "-ctv", "f16"]), (LLAMA, ["--attention-size", 20]), (GEMMA, []),
                             (LLAMA, ["--overflow", "rolling", "--kv-window", 30]), (GEMMA, ["--exact"]),
                             (GEMMA, ["--overflow", "rolling", "--kv-sinks", 2, "--kv-window", 40])]:  # fmt: skip
            with self.subTest(model=model.name, words=words):
                whole = self.report("-f", TEXT, "-n", 30, *words, model=model)
                self.save(*words, model=model)
                again = self.report("--load-state", self.state, "-n", 30, *words, model=model)
                for key in ("logits_hash", "tokens", "text", "position", "context_tokens", "attention_size", "key_type"):
                    self.assertEqual(again[key], whole[key], key)
                self.assertEqual((again["loaded_tokens"], again["prefill_tokens"]), (PROMPT_TOKENS, 0))

    def test_what_was_written_is_part_of_it(self):
        whole = self.report("-f", TEXT, "-n", 12)
        self.report("-f", TEXT, "-n", 5, "--save-state", self.state)
        rest = self.report("--load-state", self.state, "-n", 7)
        self.assertEqual(rest["tokens"], whole["tokens"][5:])
        self.assertEqual(rest["loaded_tokens"], PROMPT_TOKENS + 5)

    def test_the_snapshot_brings_its_window_types_and_attention_size(self):
        words = ("--overflow", "rolling", "--kv-window", 30, "-ctv", "f32", "--attention-size", 9)
        whole = self.report("-f", TEXT, "-n", 9, *words)
        self.save(*words)
        again = self.report("--load-state", self.state, "-n", 9)
        self.assertEqual(again["logits_hash"], whole["logits_hash"])
        self.assertEqual((again["context_limit"], again["value_type"], again["attention_size"]), (34, "f32", 9))

    def test_the_attention_size_may_change_with_the_loading(self):
        self.save("--attention-size", 9)
        again = self.report("--load-state", self.state, "-n", 9, "--attention-size", 40)
        self.assertEqual(again["attention_size"], 40)

    def test_loading_and_saving_are_events(self):
        self.save()
        report = self.report("--load-state", self.state, "-n", 3, "--save-state", self.folder / "other.kv")
        self.assertEqual([(e["kind"], e["position"]) for e in report["events"]], [("load", 80), ("save", 83)])

    def test_a_prompt_is_read_behind_the_snapshot(self):
        first, second = "the tide came in", " and the sand was dark"
        ids = [self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-p", text, "--json")).json["ids"]
               for text in (first, second, first + second)]  # fmt: skip
        self.assertEqual(ids[0] + ids[1], ids[2])
        self.report("-p", first, "-n", 0, "--save-state", self.state)
        report = self.report("--load-state", self.state, "-p", second, "-n", 6)
        whole = self.report("-p", first + second, "-n", 6)
        self.assertEqual((report["logits_hash"], report["tokens"]), (whole["logits_hash"], whole["tokens"]))
        self.assertEqual((report["loaded_tokens"], report["prefill_tokens"]), (len(ids[0]), len(ids[1])))

    def test_a_larger_context_makes_room(self):
        self.save("-c", 82)
        self.assertEqual(self.report("--load-state", self.state, "-n", 9, "-c", 85, status=7)["context_tokens"], 85)
        self.assertEqual(self.report("--load-state", self.state, "-n", 9, "-c", 100)["context_tokens"], 89)


class Saving(SnapshotTest):
    def test_a_snapshot_is_written_every_so_many_tokens(self):
        report = self.report("-f", TEXT, "-n", 20, "--prefill-chunk", 16, "--save-state", self.state, "--save-every", 30)
        saves = [event["position"] for event in report["events"] if event["kind"] == "save"]
        # At the ends of chunks of 16, then token by token, and at the end.
        self.assertEqual(saves, [32, 64, 94, 100])
        self.assertEqual(self.info()["position"], 100)

    def test_only_the_owner_may_read_it(self):
        self.save()
        self.assertEqual(self.state.stat().st_mode & 0o777, 0o600)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["report.json", "state.kv"])

    def test_a_place_where_none_can_be_is_refused_before_reading(self):
        for path, part in [(self.folder / "absent" / "s.kv", "No such file"), (self.folder, "directory"), ("/dev/full", "device")]:
            outcome = kvtide("run", "-m", LLAMA, "-f", TEXT, "-n", 1, "--save-state", path)
            self.assert_refused(outcome, IO, str(path), part)
        self.assertFalse(os.path.isfile("/dev/full"))


    def test_a_snapshot_without_room_is_refused_before_reading(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        outcome = kvtide("run", "-m", LLAMA, "-f", TEXT, "-n", 1, "--save-state", self.state, preexec_fn=limit)
        self.assert_refused(outcome, IO, str(self.state), "the snapshot takes about 20.0 KiB", "7.8 KiB", "ulimit", "nothing was read")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_another_text_behind_a_snapshot_is_told(self):
        self.save()
        other = self.file("other.txt", b"and the side\n")
        outcome = self.assert_fine(kvtide("run", "-m", LLAMA, "-f", other, "-n", 1, "--load-state", self.state))
        self.assertRegex(outcome.err, rf"note: {other}: a new text, read behind the \d+ tokens of another, which {self.state} holds")
        question = self.assert_fine(kvtide("run", "-m", LLAMA, "-p", "and", "-n", 1, "--load-state", self.state))
        self.assertNotIn("a new text", question.err)


class Interrupted(SnapshotTest):
    def test_ctrl_c_while_reading_leaves_a_snapshot_from_which_the_reading_goes_on(self):
        long = self.file("long.txt", TEXT.read_bytes() * 2500)
        words = ("-c", 300000, "--prefill-chunk", 64, "-t", 1)
        process = start("run", "-m", LLAMA, "-f", long, *words, "--save-state", self.state)
        wait_for_line(process, b"parameters")
        time.sleep(0.2)
        outcome = interrupt(process)
        self.assertEqual((outcome.status, outcome.out), (CANCELLED, b""), outcome.err)
        kept = int(re.search(r"stopped after (\d+) of 200000 tokens", outcome.err)[1])
        self.assertGreater(kept, 0)
        self.assertIn(f"the same command with --load-state {self.state} reads the rest", outcome.err)
        self.assertEqual(self.info()["position"], kept)

        # The same text, cut soon behind that place: only the rest is read, with the bits of an unbroken reading.
        shorter = self.file("shorter.txt", TEXT.read_bytes() * (kept // 80 + 3))
        rest = self.report("-f", shorter, "-n", 4, "--load-state", self.state, *words)
        whole = self.report("-f", shorter, "-n", 4, *words)
        self.assertEqual(rest["loaded_tokens"], kept)
        self.assertEqual(rest["prefill_tokens"], whole["prefill_tokens"] - kept)
        self.assertEqual(rest["logits_hash"], whole["logits_hash"])

    def test_the_same_command_with_the_snapshot_reads_the_rest_of_every_kind_of_memory(self):
        # A text that takes long enough to be interrupted, and short enough to be read to its end.
        text = self.file("long.txt", TEXT.read_bytes() * 60)
        kinds = [("-c", 6000, "-ctk", "f32"),
                 ("--overflow", "rolling", "--kv-window", 200),
                 ("--kv-proc", "on", "--kv-window", 64, "--kv-block", 32, "--kv-salient", 6, "--kv-r", 2, "--kv-heads", "even"),
                 ("-c", 6000, "--chat", "--chat-template", "mistral-instruct")]  # fmt: skip
        for number, kind in enumerate(kinds):
            with self.subTest(kind=kind):
                state = self.folder / f"{number}.kv"
                words = ("-f", text, "-n", 3, "--prefill-chunk", 8, "-t", 1, *kind)
                process = start("run", "-m", LLAMA, *words, "--save-state", state, "--save-every", 100)
                while process.poll() is None and not state.exists():
                    time.sleep(0.001)
                outcome = interrupt(process)
                self.assertEqual(outcome.status, CANCELLED, outcome.err)
                hint = re.search(r"the same command with (--load-state \S+) reads the rest", outcome.err)
                self.assertIsNotNone(hint, outcome.err)
                rest = self.report(*words, "--save-state", state, *hint[1].split())
                whole = self.report(*words)
                self.assertGreater(rest["loaded_tokens"], 0)
                for key in ("logits_hash", "text", "position"):
                    self.assertEqual(rest[key], whole[key], key)

    def test_no_rest_is_promised_of_a_text_that_was_read_behind_another(self):
        self.report("-p", "in the end", "-n", 0, "--save-state", self.state)
        long, other = self.file("long.txt", TEXT.read_bytes() * 2500), self.folder / "other.kv"
        words = ("-c", 300000, "--prefill-chunk", 64, "-t", 1, "--load-state", self.state, "--save-state", other)
        process = start("run", "-m", LLAMA, "-f", long, *words)
        wait_for_line(process, b"parameters")
        time.sleep(0.1)
        outcome = interrupt(process)
        self.assertNotIn("reads the rest", outcome.err)
        self.assertIn(f"--load-state {other} goes on from here", outcome.err)

    def test_ctrl_c_while_writing_leaves_one_too(self):
        process = start("run", "-m", LLAMA, "-p", "the tide", "-n", -1, "-c", 1000000, "-t", 1, "--save-state", self.state)
        read_until(process, process.stdout, len, "the first letter of the answer")
        outcome = interrupt(process)
        self.assertEqual(outcome.status, CANCELLED, outcome.err)
        self.assertIn(f"the same command with --load-state {self.state} without -p and -f goes on writing", outcome.err)
        self.assertGreater(self.info()["position"], 2)
        self.assertGreater(self.report("--load-state", self.state, "-n", 2, "-c", 1000000)["loaded_tokens"], 2)


class OtherFiles(SnapshotTest):
    """What a user has must not become a snapshot by mistake."""

    def test_only_a_snapshot_is_replaced(self):
        files = {"book.txt": (b"the tide came in\n", "is a text"), "model.gguf": (LLAMA.read_bytes(), "is a GGUF model"),
                 "page.html": (b"<!DOCTYPE html>\n<html>", "is an HTML page"), "raw.bin": (bytes(range(256)), "is a file of another kind")}  # fmt: skip
        for name, (content, kind) in files.items():
            path = self.file(name, content)
            outcome = kvtide("run", "-m", LLAMA, "-f", TEXT, "--save-state", path)
            self.assert_refused(outcome, BAD_FORMAT, str(path), kind, "nothing was read", "another name")
            self.assertEqual(path.read_bytes(), content)
            self.save()
            outcome = kvtide("state", "truncate", self.state, "--length", 3, "--out", path)
            self.assert_refused(outcome, BAD_FORMAT, str(path), kind)
            self.assertEqual(path.read_bytes(), content)

    def test_an_older_snapshot_and_an_empty_file_are_replaced(self):
        self.file("state.kv", b"")
        self.save()
        self.save("-c", 200)
        self.assertEqual(self.info()["capacity"], 200)

    def test_a_file_that_is_no_snapshot_is_named_for_what_it_is(self):
        outcome = kvtide("run", "-m", LLAMA, "-p", "a", "--load-state", TEXT)
        self.assert_refused(outcome, BAD_FORMAT, str(TEXT), "is a text, not a snapshot")
        self.assert_refused(kvtide("state", "info", LLAMA), BAD_FORMAT, str(LLAMA), "is a GGUF model, not a snapshot")


class Refused(SnapshotTest):
    def refused(self, status, *parts, words=(), model=LLAMA):
        outcome = kvtide("run", "-m", model, "--load-state", self.state, "-n", 1, *words)
        self.assert_refused(outcome, status, str(self.state), *parts)

    def test_a_snapshot_of_another_model_names_both(self):
        self.save(model=GEMMA)
        ours, theirs = self.info()["identity"], self.folder / "ours.kv"
        self.save(path=theirs)
        self.refused(USAGE, "another", self.info(theirs)["identity"]["architecture"], ours["architecture"])

    def test_a_snapshot_of_other_weights_is_refused(self):
        content = bytearray(LLAMA.read_bytes())
        content[-2] ^= 1
        self.save(model=self.file("other.gguf", bytes(content)))
        self.refused(USAGE, "another model")

    def test_damage_is_found_wherever_it_is(self):
        self.save()
        whole = self.state.read_bytes()
        for at in (0, 9, 13, 18, 200, len(whole) // 2, len(whole) - 60, len(whole) - 30, len(whole) - 10, len(whole) - 1):
            broken = bytearray(whole)
            broken[at] ^= 4
            self.state.write_bytes(broken)
            with self.subTest(at=at):
                outcome = kvtide("run", "-m", LLAMA, "--load-state", self.state, "-n", 1)
                self.assertIn(outcome.status, (BAD_FORMAT, 5), outcome.err)  # 5: a version that does not exist
                self.assert_refused(outcome, outcome.status, str(self.state))
        self.state.write_bytes(whole[:-100])
        self.refused(BAD_FORMAT, "not a sound snapshot")
        self.state.write_bytes(b"")
        self.refused(BAD_FORMAT)

    def test_a_missing_snapshot_is_named(self):
        self.refused(3, "No such file")

    def test_flags_that_ask_for_another_memory_are_named(self):
        self.save()
        self.refused(USAGE, "-ctk", words=["-ctk", "f32"])
        self.refused(USAGE, "-ctv", words=["-ctv", "f32"])
        self.refused(USAGE, "--overflow rolling", words=["--overflow", "rolling"])
        self.refused(USAGE, "without --exact", words=["--exact"])
        self.save("--overflow", "rolling", "--kv-window", 30)
        self.refused(USAGE, "--overflow rolling", words=["--overflow", "rolling", "--kv-window", 31])
        self.refused(USAGE, "--overflow refill", words=["--overflow", "refill"])

    def test_a_snapshot_without_logits_needs_a_prompt(self):
        self.save()
        self.assert_fine(kvtide("state", "truncate", self.state, "--length", 50))
        self.refused(USAGE, "no logits", "-p")
        self.assertEqual(self.report("--load-state", self.state, "-p", "in", "-n", 1)["loaded_tokens"], 50)


class HashCache(SnapshotTest):
    def entries(self, base):
        folder = base / "kvtide"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def run_in(self, *words, **variables):
        done = subprocess.run([PROGRAM, "run", "-m", LLAMA, "-p", "in", "-n", "0", "--save-state", self.state, *words],
                              env=environment() | {name: str(value) for name, value in variables.items()},
                              capture_output=True, check=False, timeout=TIMEOUT_S)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_hash_is_kept_where_the_user_keeps_caches(self):
        self.run_in(XDG_CACHE_HOME=self.folder / "cache")
        (entry,) = self.entries(self.folder / "cache")
        self.assertEqual(entry.read_text("ascii"), self.info()["identity"]["model"])

    def test_home_is_the_second_choice_and_a_relative_folder_none(self):
        self.run_in(XDG_CACHE_HOME="relative", HOME=self.folder / "home")
        self.assertEqual(len(self.entries(self.folder / "home" / ".cache")), 1)

    def test_without_a_cache_nothing_is_kept(self):
        self.run_in("--no-cache", XDG_CACHE_HOME=self.folder / "cache")
        self.assertEqual(self.entries(self.folder / "cache"), [])

    def test_a_cache_that_cannot_be_made_only_costs_time(self):
        self.run_in(XDG_CACHE_HOME=self.file("file", b""))

    def test_a_changed_file_has_another_hash(self):
        model = self.file("model.gguf", LLAMA.read_bytes())
        self.save(model=model)
        content = bytearray(LLAMA.read_bytes())
        content[-2] ^= 1
        model.write_bytes(content)
        outcome = kvtide("run", "-m", model, "--load-state", self.state, "-n", 1)
        self.assert_refused(outcome, USAGE, "another model")


class Chat(SnapshotTest):
    WORDS = ("chat", "-m", LLAMA, "--chat-template", "mistral-instruct", "-n", 3, "--temp", 0, "--repeat-penalty", 1)

    def talk(self, lines, *words, status=0):
        path = self.folder / "report.json"
        outcome = kvtide(*self.WORDS, "--report", path, *words, stdin="".join(f"{line}\n" for line in lines).encode())
        self.assertEqual(outcome.status, status, outcome.err)
        return outcome, json.loads(path.read_text("utf-8"))

    def test_a_talk_goes_on_in_another_program(self):
        _, whole = self.talk(["the tide came in", "and again"])
        self.talk(["the tide came in", f"/save {self.state}", "something else"])
        for lines, words in [([f"/load {self.state}", "and again"], []), (["and again"], ["--load-state", self.state])]:
            _, rest = self.talk(lines, *words)
            self.assertEqual(rest["tokens"], whole["tokens"][3:])
            self.assertEqual(rest["turns"][0]["prefill_tokens"], whole["turns"][1]["prefill_tokens"])
            self.assertEqual(rest["context_tokens"], whole["context_tokens"])

    def test_the_end_saves_when_it_is_asked_to(self):
        _, report = self.talk(["the tide came in"], "--save-state", self.state)
        self.assertEqual(self.info()["position"], report["context_tokens"])
        self.assertEqual([event["kind"] for event in report["events"]], ["save"])

    def test_a_file_that_cannot_be_loaded_leaves_the_talk_as_it_was(self):
        _, whole = self.talk(["the tide came in", "and again"])
        broken = self.file("broken.kv", b"KVTIDE\0\1 and no more than that")
        outcome, rest = self.talk(["the tide came in", f"/load {broken}", "and again"], status=BAD_FORMAT)
        self.assertEqual(rest["tokens"], whole["tokens"])
        self.assertIn("goes on as it was", outcome.err)
        outcome, _ = self.talk(["/save", "/load", "/save /dev/full", "in"], status=IO)
        self.assertIn("/save: say which file", outcome.err)
        self.assertIn("/load: say which file", outcome.err)

    def test_a_full_context_is_refilled(self):
        lines = ["the tide came in", "and again", "and so on", "in the end"]
        _, report = self.talk(lines, "-c", 40, "--overflow", "refill")
        self.assertEqual(len(report["turns"]), 4)
        self.assertGreater(len([event for event in report["events"] if event["kind"] == "refill"]), 0)
        self.assertLessEqual(report["context_tokens"], 40)
        self.assertEqual(self.talk(lines, "-c", 40, status=7)[1]["events"], [])


if __name__ == "__main__":
    unittest.main()
