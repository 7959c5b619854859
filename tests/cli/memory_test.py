"""The KV memory as flags want it: types, attention sizes, what happens when it is full, strategies."""

import json
import struct
import unittest

from commands_test import VOCABULARY, read_npy
from program import LLAMA, TEXT, ProgramTest, kvtide

PROMPT_TOKENS = 80
LAYERS = 2
USAGE, UNSUPPORTED, CONTEXT_FULL = 2, 5, 7


class MemoryTest(ProgramTest):
    def report(self, *words, prompt=("-f", TEXT), model=LLAMA, status=0):
        path = self.folder / "report.json"
        outcome = kvtide("run", "-m", model, *prompt, "--report", path, *words)
        self.assertEqual(outcome.status, status, outcome.err)
        return json.loads(path.read_text("utf-8"))

    def last_row(self, text, *words):
        path = self.folder / "row.npy"
        self.assert_fine(kvtide("logits", "-m", LLAMA, "-p", text, "--out", path, *words))
        return read_npy(path)[1].tolist()

    def kinds(self, report):
        return [event["kind"] for event in report["events"]]


class Types(MemoryTest):
    def wide_heads(self):
        """The tiny model with one head of 32 instead of four of 8: q8_0 needs whole blocks of 32."""
        content = LLAMA.read_bytes()
        for key in (b"llama.attention.head_count", b"llama.attention.head_count_kv"):
            four = struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, 4)  # a 32-bit number: 4
            self.assertEqual(content.count(four), 1)
            content = content.replace(four, four[:-4] + struct.pack("<I", 1))
        for key in (b"llama.rope.dimension_count", b"llama.attention.key_length", b"llama.attention.value_length"):
            eight = struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, 8)
            content = content.replace(eight, eight[:-4] + struct.pack("<I", 32))
        return self.file("wide.gguf", content)

    def test_each_type_of_keys_and_values_is_taken_by_itself(self):
        model = self.wide_heads()
        hashes = {}
        for keys in ("f32", "f16", "q8_0"):
            for values in ("f32", "f16", "q8_0"):
                report = self.report("-n", 4, "-ctk", keys, "-ctv", values, model=model)
                self.assertEqual((report["key_type"], report["value_type"]), (keys, values))
                hashes[keys, values] = report["logits_hash"]
        self.assertEqual(len(set(hashes.values())), 9)

    def test_smaller_types_take_fewer_bytes(self):
        text = self.file("long.txt", TEXT.read_bytes() * 40)
        bytes_of = {
            name: self.report("-n", 0, "-c", 4000, "-ctk", name, "-ctv", name, prompt=("-f", text), model=self.wide_heads())["kv_bytes"]
            for name in ("f32", "f16", "q8_0")
        }  # fmt: skip
        # 3,200 tokens, 2 layers, keys and values of 32 numbers: 4, 2 and 34/32 bytes each, in whole pages.
        for name, size in (("f32", 4), ("f16", 2), ("q8_0", 34 / 32)):
            self.assertLess(abs(bytes_of[name] - 3200 * 2 * 2 * 32 * size), 2 * 2 * 2 * 4096)

    def test_heads_that_are_no_whole_blocks_are_refused(self):
        outcome = kvtide("run", "-m", LLAMA, "-p", "a", "-ctk", "q8_0")
        self.assert_refused(outcome, USAGE, "q8_0", "multiple of 32", "not 8")


class AttentionSize(MemoryTest):
    def test_a_token_sees_exactly_so_many_positions(self):
        # Through two layers the last token hears of 2 * (A - 1) earlier ones. All texts have the same length.
        base = "a" * 24
        for size in (1, 2, 3, 5):
            reach = LAYERS * (size - 1)
            rows = {}
            for changed in (None, reach, reach + 1):
                letters = list(base)
                if changed is not None:
                    letters[-1 - changed] = "s"
                rows[changed] = self.last_row("".join(letters), "--attention-size", size)
            self.assertEqual(rows[None], rows[reach + 1], f"{size}: sees too much")
            self.assertNotEqual(rows[None], rows[reach], f"{size}: sees too little")

    def test_one_that_covers_everything_changes_no_bit(self):
        full = self.report("-n", 8)
        self.assertEqual(self.report("-n", 8, "--attention-size", 88)["logits_hash"], full["logits_hash"])
        small = self.report("-n", 8, "--attention-size", 40)
        self.assertNotEqual(small["logits_hash"], full["logits_hash"])
        self.assertEqual((small["attention_size"], full["attention_size"]), (40, None))
        self.assertEqual((small["context_tokens"], small["events"]), (88, []))

    def test_chunks_change_no_bit(self):
        hashes = {self.report("-n", 5, "--attention-size", 13, "--prefill-chunk", chunk)["logits_hash"]
                  for chunk in (1, 7, 80)}  # fmt: skip
        self.assertEqual(len(hashes), 1)

    def test_ppl_bench_and_chat_take_it_too(self):
        text = self.file("text.txt", TEXT.read_bytes() * 4)
        scores = [self.assert_fine(kvtide("ppl", "-m", LLAMA, "-f", text, "-c", 64, "--json", *words)).json["ppl"]
                  for words in ([], ["--attention-size", 64], ["--attention-size", 4])]  # fmt: skip
        self.assertEqual(scores[0], scores[1])
        self.assertNotEqual(scores[0], scores[2])
        words = ("-p", 0, "-n", 3, "-d", 40, "-r", 1, "--json")
        plain, small = (self.assert_fine(kvtide("bench", "-m", LLAMA, *words, *more)).json[0]
                        for more in ([], ["--attention-size", 4]))  # fmt: skip
        self.assertNotEqual(plain["logits_hash"], small["logits_hash"])
        self.assertEqual(plain["kv_bytes"], small["kv_bytes"])
        outcome = kvtide("chat", "-m", LLAMA, "--chat-template", "mistral-instruct", "--attention-size", 4, "-n", 1, stdin=b"in\n")
        self.assertIn("attention size 4", self.assert_fine(outcome).err)

    def test_nothing_is_not_a_size(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "--attention-size", 0), USAGE, "--attention-size", "from 1", "auto")


class AdaptingAttention(MemoryTest):
    SIZES = ("-c", 2000, "--attention-size", "auto:64-512")

    def setUp(self):
        super().setUp()
        self.text = self.file("long.txt", TEXT.read_bytes() * 14)  # 1,120 tokens

    def test_every_change_is_an_event_and_a_line(self):
        path = self.folder / "report.json"
        outcome = self.assert_fine(kvtide("run", "-m", LLAMA, "-f", self.text, "-n", 4, "-v", *self.SIZES, "--report", path))
        report = json.loads(path.read_text("utf-8"))
        size = 64
        self.assertGreater(len(report["events"]), 0)
        for event in report["events"]:
            self.assertEqual((event["kind"], event["position"] % 256, event["size_before"]), ("adapt", 0, size))
            size = event["size"]
            self.assertIn(f"adapt at {event['position']:,}: size before {event['size_before']}, size {size}, far share ppm", outcome.err)
        self.assertEqual(report["attention_size"], size)
        self.assertIn("adapts itself from 64 to 512", outcome.err)

    def test_chunks_threads_and_an_interruption_change_no_bit(self):
        words = ("-n", 8, *self.SIZES)
        whole = self.report(*words, prompt=("-f", self.text))
        for more in (["--prefill-chunk", 33], ["-t", 3, "--prefill-chunk", 1]):
            other = self.report(*words, *more, prompt=("-f", self.text))
            self.assertEqual((other["logits_hash"], other["events"]), (whole["logits_hash"], whole["events"]))
        half, snapshot = self.file("half.txt", TEXT.read_bytes() * 7), self.folder / "half.kv"
        self.report("-n", 0, *self.SIZES, "--save-state", snapshot, prompt=("-f", half))
        info = self.assert_fine(kvtide("state", "info", snapshot, "--json")).json
        self.assertEqual(info["auto_attention"], {"smallest": 64, "largest": 512})
        for flags in (self.SIZES, ["-c", 2000]):  # the snapshot brings it with it
            rest = self.report("-n", 8, *flags, "--load-state", snapshot, prompt=("-f", self.text))
            self.assertEqual((rest["tokens"], rest["logits_hash"]), (whole["tokens"], whole["logits_hash"]))

    def test_a_size_given_with_the_loading_ends_it(self):
        snapshot = self.folder / "state.kv"
        self.report("-n", 0, *self.SIZES, "--save-state", snapshot, prompt=("-f", self.text))
        report = self.report("-n", 2, "--load-state", snapshot, "--attention-size", 100, prompt=())
        self.assertEqual((report["attention_size"], self.kinds(report)), (100, ["load"]))

    def test_refilling_begins_anew_and_the_changes_before_it_stay_reported(self):
        report = self.report("-n", 0, "-c", 600, "--overflow", "refill", "--attention-size", "auto:64-512", prompt=("-f", self.text))
        kinds = self.kinds(report)
        self.assertIn("adapt", kinds[: kinds.index("refill")])

    def test_a_stream_tells_its_changes(self):
        score = self.assert_fine(kvtide("ppl", "-m", LLAMA, "-f", self.text, "--stream", *self.SIZES, "--json")).json
        run = self.report("-n", 0, *self.SIZES, prompt=("-f", self.text))
        self.assertEqual(score["events"], run["events"])

    def test_ranges_that_make_no_sense_are_explained(self):
        for value in ("auto:9-8", "auto:0-8", "auto:9", "auto:", "automatic", "auto-9", "auto:3-x", "full"):
            with self.subTest(value=value):
                self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "--attention-size", value), USAGE, "--attention-size")
        words = ("--attention-size", "auto", "--strategy", "attend=9")
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", *words), USAGE, "attend=", "auto")


class Rolling(MemoryTest):
    WORDS = ("--overflow", "rolling", "--kv-sinks", 3, "--kv-window", 20)

    def test_what_was_forgotten_is_counted(self):
        report = self.report("-n", 40, *self.WORDS)
        self.assertEqual((report["position"], report["context_tokens"], report["context_limit"]), (120, 23, 23))
        (event,) = report["events"]
        self.assertEqual({key: event[key] for key in ("kind", "position", "dropped", "kept", "sinks", "window")},
                         {"kind": "rolling", "position": 120, "dropped": 97, "kept": 23, "sinks": 3, "window": 20})  # fmt: skip

    def test_a_text_that_fits_is_read_as_ever(self):
        full = self.report("-n", 5)
        wide = self.report("-n", 5, "--overflow", "rolling", "--kv-sinks", 0, "--kv-window", 90)
        self.assertEqual((wide["logits_hash"], wide["events"]), (full["logits_hash"], []))

    def test_the_window_and_the_sinks_are_what_a_token_sees(self):
        reach = LAYERS * 4  # a window of 5
        for sinks, changed, same in [(0, reach, False), (0, reach + 1, True), (0, 29, True), (2, 29, False), (2, 28, False),
                                     (2, 27, True), (2, reach + 1, True)]:  # fmt: skip
            letters = ["a"] * 30
            words = ("--overflow", "rolling", "--kv-sinks", sinks, "--kv-window", 5)
            before = self.last_row("".join(letters), *words)
            letters[-1 - changed] = "s"
            with self.subTest(sinks=sinks, changed=changed):
                self.assertEqual(self.last_row("".join(letters), *words) == before, same)

    def test_a_text_of_any_length_takes_the_same_memory(self):
        sizes = set()
        for copies in (20, 200):
            text = self.file("text.txt", TEXT.read_bytes() * copies)
            report = self.report("-n", 0, *self.WORDS, "--prefill-chunk", 64, prompt=("-f", text))
            self.assertEqual(report["position"], 80 * copies)
            sizes.add(report["kv_bytes"])
        self.assertLessEqual(max(sizes), 2 * 2 * 4 * 4 * 4096)  # layers, keys and values, heads, pages

    def test_the_window_is_what_fits_the_context(self):
        self.assertEqual(self.report("-n", 0, "-c", 50, "--overflow", "rolling")["context_limit"], 50)
        self.assertEqual(self.report("-n", 0, "--overflow", "rolling")["context_limit"], 256)
        self.assertEqual(self.report("-n", 0, "--overflow", "rolling", "--kv-window", 1000)["context_limit"], 1004)
        outcome = kvtide("run", "-m", LLAMA, "-p", "a", "-c", 20, *self.WORDS)
        self.assert_refused(outcome, USAGE, "3 sinks", "window of 20", "context of 20")

    def test_a_stream_is_scored_through_the_window(self):
        text = self.file("text.txt", TEXT.read_bytes() * 20)
        score = self.assert_fine(kvtide("ppl", "-m", LLAMA, "-f", text, "--stream", "--bucket", 400, "--json", *self.WORDS)).json
        self.assertEqual(score["tokens_scored"], 1599)
        self.assertEqual([bucket["tokens_scored"] for bucket in score["buckets"]], [399, 400, 400, 400])
        less = kvtide("ppl", "-m", LLAMA, "-f", text, "--stream", "--json", "-c", 500, *self.WORDS)
        self.assertEqual(self.assert_fine(less).json["tokens_scored"], 499)

    def test_the_trained_context_is_no_limit_for_a_small_window(self):
        text = self.file("text.txt", TEXT.read_bytes() * 10)
        small = self.assert_fine(kvtide("run", "-m", LLAMA, "-f", text, "-n", 1, *self.WORDS))
        self.assertNotIn("warning", small.err)
        large = self.assert_fine(kvtide("run", "-m", LLAMA, "-f", text, "-n", 1, "--overflow", "rolling", "--kv-window", 400))
        self.assertEqual(large.err.count("warning"), 1)


class Refill(MemoryTest):
    def test_half_is_dropped_and_the_answer_goes_on(self):
        large = self.report("-n", 20)
        report = self.report("-n", 20, "-c", 90, "--overflow", "refill")
        (event,) = report["events"]
        self.assertEqual({key: event[key] for key in ("kind", "position", "dropped", "kept")},
                         {"kind": "refill", "position": 90, "dropped": 45, "kept": 45})  # fmt: skip
        # Ten tokens were read before the memory was full, the eleventh was chosen.
        self.assertEqual(report["tokens"][:11], large["tokens"][:11])
        self.assertEqual((len(report["tokens"]), report["context_tokens"]), (20, 55))

    def test_the_prompt_stays_when_it_is_asked_for(self):
        report = self.report("-n", 30, "-c", 90, "--overflow", "refill", "--keep-prompt")
        # 80 tokens of prompt and half of the ten others stay, again and again.
        self.assertEqual([(e["position"], e["dropped"], e["kept"]) for e in report["events"]], [(90, 5, 85)] * 4)
        self.assertEqual(report["context_tokens"], 90)

    def test_a_prompt_longer_than_the_context_is_read_in_pieces(self):
        report = self.report("-n", 0, "-c", 30, "--overflow", "refill", "--prefill-chunk", 8)
        self.assertEqual([(e["position"], e["dropped"]) for e in report["events"]], [(30, 15)] * 4)
        self.assertEqual((report["prefill_tokens"], report["context_tokens"]), (80, 20))

    def test_a_prompt_that_cannot_stay_is_refused_before_it_is_read(self):
        words = ("--overflow", "refill", "--keep-prompt", "-c")
        self.assert_refused(kvtide("run", "-m", LLAMA, "-f", TEXT, *words, 81), CONTEXT_FULL, "80 tokens", "-c 82")
        self.assertEqual(len(self.report("-n", 8, *words, 82)["events"]), 6)

    def test_only_answers_are_refilled(self):
        for command in (["ppl", "-f", TEXT], ["logits", "-f", TEXT, "--out", self.folder / "x.npy"], ["bench"]):
            outcome = kvtide(command[0], "-m", LLAMA, *command[1:], "--overflow", "refill")
            self.assert_refused(outcome, USAGE, "refill", command[0])


class Strategies(MemoryTest):
    STEPS = "prefill=128,compact=90,attend=32,expand=100,expand=200"

    def test_the_tokens_are_those_of_a_memory_that_was_always_large(self):
        resized = self.report("-n", 40, "--strategy", self.STEPS)
        large = self.report("-n", 40, "--strategy", "attend=32")
        self.assertEqual((resized["tokens"], resized["logits_hash"]), (large["tokens"], large["logits_hash"]))
        self.assertNotEqual(resized["logits_hash"], self.report("-n", 40)["logits_hash"])

    def test_every_step_is_reported_with_its_time(self):
        report = self.report("-n", 40, "--strategy", self.STEPS)
        self.assertEqual(self.kinds(report), ["compact", "attention", "expand", "expand"])
        compact, attention, first, second = report["events"]
        self.assertEqual((compact["position"], compact["capacity_before"], compact["capacity_after"]), (80, 128, 90))
        self.assertEqual((attention["position"], attention["size"]), (80, 32))
        self.assertEqual((first["position"], first["capacity_before"], first["capacity_after"]), (90, 90, 100))
        self.assertEqual((second["position"], second["capacity_before"], second["capacity_after"]), (100, 100, 200))
        for event in report["events"]:
            self.assertGreater(event["ms"], 0)
            self.assertEqual(event["dropped"], 0)

    def test_where_it_ends_the_context_is_full_as_ever(self):
        report = self.report("-n", 60, "--strategy", "compact=90,expand=100", status=CONTEXT_FULL)
        self.assertEqual((report["context_tokens"], report["stop_reason"]), (100, "context_full"))

    def test_a_prompt_too_long_for_a_step_is_refused_before_it_is_read(self):
        outcome = kvtide("run", "-m", LLAMA, "-f", TEXT, "--strategy", "compact=79")
        self.assert_refused(outcome, USAGE, "compact to 79", "80 tokens", "compact=80")
        outcome = kvtide("run", "-m", LLAMA, "-f", TEXT, "--strategy", "prefill=79")
        self.assert_refused(outcome, CONTEXT_FULL, "80 tokens", "79")

    def test_steps_that_make_no_sense_are_explained(self):
        for steps, *parts in [("prefil=3", "'prefil'", "did you mean prefill?"), ("attend", "'attend'", "whole number"),
                              ("attend=0", "whole number from 1"), ("attend=4,attend=5", "twice"), ("", "prefill=512"),
                              ("prefill=10,compact=20", "compact=20", "prefill=10"), ("prefill=20,expand=20", "expand=20"),
                              ("expand=30,expand=30", "expand=30"), ("attend=5,", "there is no step ''")]:  # fmt: skip
            with self.subTest(steps=steps):
                self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "--strategy", steps), USAGE, "--strategy", *parts)


class Contradictions(MemoryTest):
    def test_flags_without_their_policy_are_named(self):
        for words, *parts in [(["--kv-window", 9], "--kv-window", "--overflow rolling"), (["--kv-sinks", 9], "--kv-sinks"),
                              (["--keep-prompt"], "--keep-prompt", "--overflow refill"),
                              (["--save-every", 9], "--save-every", "--save-state"),
                              (["--strategy", "prefill=9", "-c", 10], "prefill=", "-c"),
                              (["--strategy", "attend=9", "--overflow", "rolling"], "--strategy", "rolling")]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", *words), USAGE, *parts)

    def test_policies_that_do_not_exist_name_those_that_do(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "--overflow", "drop"), USAGE, "'drop'", "stop, rolling or refill")

    def test_a_procedural_memory_has_a_flag_of_its_own(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "--overflow", "procedural"), USAGE, "--overflow", "--kv-proc on")


if __name__ == "__main__":
    unittest.main()
