"""A procedural memory from the command line: what is reported and logged, what stays, what goes, what spills.

The tiny model has two layers of four KV heads. With a window of 64 and blocks of 32 a block is compressed whenever 96
positions are exact: for the first time at position 96, and behind 3,200 tokens for the 98th time.
"""

import json
import resource
import signal
import unittest

from program import LLAMA, TEXT, ProgramTest, kvtide

USAGE, IO = 2, 8
TOKENS, WINDOW, BLOCK, SINKS = 3200, 64, 32, 4
SEALS = (TOKENS - WINDOW) // BLOCK
SEALED = SEALS * BLOCK
HEADS = 2 * 4
SHAPE = ("--kv-proc", "on", "--kv-window", WINDOW, "--kv-block", BLOCK, "--kv-salient", 10, "--kv-r", 2, "--kv-levels", 2)


class ProceduralTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.text = self.file("long.txt", TEXT.read_bytes() * 40)

    def run_report(self, *words, shape=SHAPE, heads="even", text=None):
        path = self.folder / "report.json"
        table = () if heads is None else ("--kv-heads", heads)
        self.outcome = kvtide("run", "-m", LLAMA, "-f", text or self.text, "-n", 0, "-v", "--report", path, *shape, *table, *words)
        self.assert_fine(self.outcome)
        return json.loads(path.read_text("utf-8"))

    def refused(self, *words, status=USAGE, parts=()):
        outcome = kvtide("run", "-m", LLAMA, "-f", self.text, "-n", 0, *SHAPE, "--kv-heads", "even", *words)
        self.assert_refused(outcome, status, *parts)

    def heads_file(self, *full):
        """A head table in which the named (layer, head) pairs copy from the past."""
        lines = ["layer\thead\tinduction\tshare\toutput_norm"]
        lines += [f"{layer}\t{head}\t{float((layer, head) in full)}\t1\t1" for layer in range(2) for head in range(4)]
        return self.file("heads.tsv", ("\n".join(lines) + "\n").encode())

    def log(self, path):
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class Reports(ProceduralTest):
    def test_the_report_counts_what_is_held_and_what_was_done(self):
        report = self.run_report()
        rows = report["rows"]
        self.assertEqual(rows["sinks"], HEADS * SINKS)
        self.assertEqual(rows["window"], HEADS * (TOKENS - SEALED))
        self.assertEqual((rows["full"], rows["pinned"], rows["spilled"]), (0, 0, 0))
        # Thirteen blocks stay, of 12 rows each, or 11 with rounding.
        self.assertLessEqual(rows["outliers"] + sum(rows["summaries"]), HEADS * 13 * 12)
        self.assertEqual(len(rows["summaries"]), 2)
        self.assertEqual(report["seals"], SEALS)
        self.assertEqual(report["consolidations"], SEALS - 13)
        self.assertIsNone(report["kv_budget"])
        self.assertIsNone(report["drift"])
        self.assertGreaterEqual(report["kv_bytes_peak"], report["kv_bytes"])
        self.assertGreater(report["seal_ms"], 0)
        self.assertGreater(report["log_mass_error"], 0)
        self.assertEqual(report["shed"]["tokens"], 0)  # summaries of merged blocks take over what goes
        self.assertLess(report["kv_steady_from"], 1000)
        self.assertIn("keeps ", self.outcome.err)
        self.assertIn(f"{SEALS} blocks compressed", self.outcome.err)

    def test_without_summaries_merged_blocks_lose_tokens(self):
        self.assertGreater(self.run_report("--kv-r", 0)["shed"]["tokens"], 0)

    def test_one_event_sums_up_the_run(self):
        report = self.run_report()
        (event,) = [e for e in report["events"] if e["kind"] == "procedural"]
        self.assertEqual((event["position"], event["seals"]), (TOKENS, SEALS))
        self.assertEqual(event["outliers"], report["rows"]["outliers"])

    def test_other_memories_have_nothing_to_report_about_tiers(self):
        report = self.run_report(shape=(), heads=None, text=TEXT)
        for key in ("kv_budget", "kv_bytes_peak", "rows", "seals", "shed", "drift"):
            self.assertIsNone(report[key], key)

    def test_a_budget_is_kept_and_says_what_it_picked(self):
        report = self.run_report(shape=("--kv-budget", "1M"))
        self.assertEqual(report["kv_budget"], 1 << 20)
        self.assertLessEqual(report["kv_bytes_peak"], 1 << 20)
        (line,) = [line for line in self.outcome.err.splitlines() if line.startswith("budget ")]
        self.assertIn("1.0 MiB picked window", line)

    def test_heads_that_keep_every_row_say_in_which_type(self):
        self.assertEqual(self.run_report()["kv_full_type"], "f16")  # its heads have 8 elements
        self.refused("--kv-full-type", "q4_0", parts=["q4_0", "multiple of 32", "use f16"])
        self.refused("--kv-full-type", "q2_k", parts=["--kv-full-type", "f16, q8_0, q4_0"])

    def test_a_memory_that_does_not_grow_says_since_when(self):
        steady = self.run_report("--prefill-chunk", 32)["kv_steady_from"]
        again = self.run_report("--prefill-chunk", 32, text=self.file("short.txt", TEXT.read_bytes() * 20))
        self.assertEqual(again["kv_steady_from"], steady)

    def test_the_log_has_a_line_for_every_seal_and_merge(self):
        path = self.folder / "seals.jsonl"
        report = self.run_report("--kv-log", path)
        lines = self.log(path)
        seals = [line for line in lines if line["kind"] == "seal"]
        self.assertEqual([line["position"] for line in seals], [(i + 1) * BLOCK + WINDOW for i in range(SEALS)])
        self.assertEqual([line["last"] for line in seals], [(i + 1) * BLOCK for i in range(SEALS)])
        self.assertEqual(len(lines) - len(seals), report["consolidations"])
        self.assertEqual([line["level"] for line in seals], [1] * SEALS)
        self.assertEqual({line["level"] for line in lines if line["kind"] == "consolidation"}, {2})
        self.assertEqual(lines[-1]["rows"]["outliers"], report["rows"]["outliers"])
        self.assertEqual(lines[-1]["shed"], report["shed"])
        self.assertLessEqual(max(line["bytes"] for line in lines), report["kv_bytes_peak"])

    def test_a_log_that_cannot_be_written_is_refused_before_anything_is_read(self):
        self.refused("--kv-log", self.folder / "nowhere" / "log", status=IO, parts=("nowhere", "--kv-log"))


class Off(ProceduralTest):
    def test_off_is_bit_for_bit_the_memory_that_keeps_everything(self):
        plain = self.run_report(shape=("-c", 4000), heads=None)
        off = self.run_report("-c", 4000, "--kv-proc", "off")
        self.assertEqual(off["logits_hash"], plain["logits_hash"])
        self.assertEqual(off["kv_bytes"], plain["kv_bytes"])
        self.assertNotEqual(self.run_report()["logits_hash"], plain["logits_hash"])


class Resuming(ProceduralTest):
    def test_a_snapshot_of_such_a_memory_goes_on_as_one_with_a_log_and_not_as_one_that_keeps_everything(self):
        state, log = self.folder / "state", self.folder / "log"
        self.run_report("--save-state", state)
        words = ("run", "-m", LLAMA, "-f", self.text, "-n", 0, "--load-state", state)
        self.assert_refused(kvtide(*words, "--kv-proc", "off"), USAGE, "--kv-proc off", "summarised")
        more = self.file("more.txt", self.text.read_bytes()[7:])
        self.assert_fine(kvtide(*words[:4], more, *words[5:], "--kv-log", log))
        self.assertGreater(len(self.log(log)), SEALS)

    def test_a_budget_comes_with_the_snapshot_and_is_told(self):
        state = self.folder / "state"
        self.run_report("--save-state", state, shape=("--kv-budget", "1M"))
        more = self.file("more.txt", self.text.read_bytes()[7:])
        for shape, heads in (((), None), (("--kv-budget", "1M"), "even")):
            report = self.run_report("--load-state", state, shape=shape, heads=heads, text=more)
            self.assertEqual(report["kv_budget"], 1 << 20)
            self.assertLessEqual(report["kv_bytes_peak"], 1 << 20)
        info = self.assert_fine(kvtide("state", "info", state, "--json")).json
        self.assertEqual(info["version"], "1.7")
        self.assertEqual(info["procedural"]["chosen"]["budget"], 1 << 20)
        self.assertIn(b"1.0 MiB, however long the text; chosen for 4,224 tokens", self.assert_fine(kvtide("state", "info", state)).out)

    def test_a_budget_is_chosen_for_the_text_that_there_is(self):
        state = self.folder / "state"
        chosen = lambda: self.assert_fine(kvtide("state", "info", state, "--json")).json["procedural"]["chosen"]
        budget = ("--kv-budget", "1M", "--save-state", state, "--prefill-chunk", 128)
        known = self.run_report(*budget, "--logits-hash", shape=())
        self.assertEqual(chosen()["budget_for"], TOKENS + 1024)
        given = self.run_report(*budget, "--logits-hash", "-c", TOKENS + 1024, shape=())
        self.assertEqual(given["logits_hash"], known["logits_hash"])
        self.run_report(*budget, "-n", 2000, shape=())
        self.assertEqual(chosen()["budget_for"], TOKENS + 2000)
        # A snapshot that is gone on from stays what it was chosen for, with whatever text.
        self.assert_fine(kvtide("run", "-m", LLAMA, "-p", "abc", "-n", 3, "--kv-heads", "even", "--load-state", state, *budget))
        self.assertEqual(chosen()["budget_for"], TOKENS + 2000)

    def test_two_memories_differ_by_the_names_of_their_options(self):
        first, second = self.folder / "first", self.folder / "second"
        self.run_report("--save-state", first)
        self.run_report("--kv-decay", 0.5, "--save-state", second)
        outcome = kvtide("state", "diff", first, second, "--json")
        self.assertEqual(outcome.json["fields"]["procedural.decay"], ["0.0", "0.5"])

    def test_a_log_needs_such_a_memory(self):
        state, log = self.folder / "state", self.folder / "log"
        words = ("run", "-m", LLAMA, "-f", self.text, "-n", 0)
        self.assert_refused(kvtide(*words, "--kv-log", log), USAGE, "--kv-log", "--kv-proc on")
        self.assert_fine(kvtide(*words, "-c", 4000, "--save-state", state))
        self.assert_refused(kvtide(*words, "--load-state", state, "--kv-log", log), USAGE, "--kv-log", "no summaries")

    def test_perplexity_tells_the_drift_too(self):
        words = ("ppl", "-m", LLAMA, "-f", self.text, "--stream", *SHAPE, "--kv-heads", "even", "--kv-shadow", "every=20", "--json")
        for more in ((), ("--against", "full")):
            self.assertGreater(self.assert_fine(kvtide(*words, *more)).json["drift"]["tokens"], 10)


class SameBits(ProceduralTest):
    def test_chunks_and_threads_change_nothing_with_every_option_on(self):
        heads = self.heads_file((0, 0), (1, 2))
        words = ("--kv-full-rows", 256, "--kv-pin", "40-59", "--kv-level-max", 30, "--kv-shed", 0.0002, "--kv-decay", 0.3,
                 "--kv-retention", 0.2)  # fmt: skip
        for more in (("--kv-adapt", "entropy"), ("--kv-adapt", "drift"), ("--kv-spill", None), ("--kv-proc-layers", "1-1")):
            hashes = set()
            for i, (chunk, threads) in enumerate(((512, 2), (7, 3), (1, 1))):
                option = ("--kv-spill", self.folder / f"spill{i}") if more[0] == "--kv-spill" else more
                report = self.run_report("--prefill-chunk", chunk, "-t", threads, *words, *option, heads=heads)
                hashes.add(report["logits_hash"])
            self.assertEqual(len(hashes), 1, more)


class Pins(ProceduralTest):
    def test_pinned_positions_stay_exact_in_every_head_for_good(self):
        heads = self.heads_file((0, 0), (1, 2))
        report = self.run_report("--kv-pin", "40-59", "--kv-full-rows", 64, heads=heads)
        self.assertEqual(report["rows"]["pinned"], 20 * (HEADS - 2))
        self.assertEqual(report["rows"]["full"], 2 * (64 + 20))

    def test_several_ranges_can_be_pinned(self):
        report = self.run_report("--kv-pin", "40-59", "--kv-pin", "50-69", "--kv-pin", "100-104")
        self.assertEqual(report["rows"]["pinned"], 35 * HEADS)

    def test_pins_outlast_any_shedding(self):
        report = self.run_report("--kv-pin", "40-59", "--kv-shed", 1e6)
        self.assertEqual(report["rows"]["outliers"], 20 * HEADS)

    def test_what_is_pinned_changes_what_is_read_later(self):
        self.assertNotEqual(self.run_report("--kv-pin", "40-59")["logits_hash"], self.run_report()["logits_hash"])

    def test_a_budget_that_cannot_hold_the_pins_is_refused_with_numbers(self):
        outcome = kvtide("run", "-m", LLAMA, "-f", self.text, "--kv-budget", "1M", "--kv-heads", "even", "--kv-pin", "0-40000")
        self.assert_refused(outcome, USAGE, "budget of 1M is too small")
        self.assertRegex(outcome.err, r"use at least \d+M$")

    def test_ranges_that_are_none_are_refused(self):
        for value, part in (("9-3", "from 9 to"), ("x", "whole number"), ("-", "whole number")):
            self.refused("--kv-pin", value, parts=("--kv-pin", part))

    def test_without_a_template_there_is_no_system_message(self):
        self.refused("--kv-pin", "system", parts=("--kv-pin system", "--chat"))

    def test_the_system_message_is_what_stands_before_the_first_message(self):
        def pinned(system):
            words = ("--chat", "--chat-template", "chatml", "--system", system, "--kv-pin", "system")
            return self.run_report(*words)["rows"]["pinned"]

        # One letter is one token in this vocabulary; the sinks are exact by themselves.
        self.assertEqual(pinned("a" * 50) - pinned("a" * 40), 10 * HEADS)


class Shedding(ProceduralTest):
    def test_a_level_holds_no_more_than_its_cap(self):
        path = self.folder / "log"
        report = self.run_report("--kv-level-max", 20, "--kv-log", path)
        self.assertGreater(report["shed"]["hard"], 0)
        self.assertGreater(report["shed"]["level_hits"], 0)
        self.assertEqual(report["shed"]["soft"], 0)
        rows = [line["rows"]["outliers"] + sum(line["rows"]["summaries"]) for line in self.log(path)]
        self.assertEqual(rows[-1], 2 * 20 * HEADS)  # both levels are full

    def test_rows_that_count_for_nothing_go_and_the_count_says_so(self):
        none, some, all_of_them = (self.run_report("--kv-shed", eps) for eps in (0, 0.01, 1e6))
        self.assertEqual(none["shed"]["soft"], 0)
        self.assertLess(some["rows"]["outliers"], none["rows"]["outliers"])
        self.assertEqual(all_of_them["rows"]["outliers"], 0)

    def test_scores_fade_unless_they_are_retained(self):
        words = ("--kv-shed", 0.001, "--kv-decay", 0.5)
        fading = self.run_report(*words)["shed"]["soft"]
        kept = self.run_report(*words, "--kv-retention", 1)
        self.assertGreater(fading, kept["shed"]["soft"])
        self.assertEqual(kept["logits_hash"], self.run_report("--kv-shed", 0.001)["logits_hash"])


class Layers(ProceduralTest):
    def test_other_layers_keep_every_row(self):
        report = self.run_report("--kv-proc-layers", "1-1")
        self.assertEqual(report["rows"]["full"], 4 * (SEALED - SINKS))
        self.assertGreater(report["rows"]["outliers"], 0)

    def test_layers_that_the_model_does_not_have_are_named(self):
        self.refused("--kv-proc-layers", "0-2", parts=("layers 0-2", "0-1"))

    def test_a_budget_needs_to_know_how_long_they_grow(self):
        outcome = kvtide("run", "-m", LLAMA, "-f", self.text, "--kv-budget", "4M", "--kv-proc-layers", "1-1")
        self.assert_refused(outcome, USAGE, "--kv-proc-layers", "-c")
        report = self.run_report("--kv-budget", "4M", "-c", 3300, "--kv-proc-layers", "1-1", shape=())
        self.assertLessEqual(report["kv_bytes_peak"], 4 << 20)


class Adapting(ProceduralTest):
    def test_rows_move_between_heads_and_their_sum_does_not_grow(self):
        plain = self.run_report()
        for how in ("entropy", "drift"):
            report = self.run_report("--kv-adapt", how)
            self.assertNotEqual(report["logits_hash"], plain["logits_hash"])
            held = report["rows"]["outliers"] + sum(report["rows"]["summaries"])
            self.assertLessEqual(held, plain["rows"]["outliers"] + sum(plain["rows"]["summaries"]))
        self.assertEqual(self.run_report("--kv-adapt", "off")["logits_hash"], plain["logits_hash"])


class ShadowMode(ProceduralTest):
    def test_it_changes_no_bit_and_reports_what_compression_costs(self):
        plain = self.run_report()
        report = self.run_report("--kv-shadow", "every=64")
        self.assertEqual(report["logits_hash"], plain["logits_hash"])
        self.assertEqual(report["kv_bytes_peak"], plain["kv_bytes_peak"])
        drift = report["drift"]
        # The first sample behind the first seal is position 127, the last 3,199.
        self.assertEqual(drift["tokens"], TOKENS // 64 - 1)
        for what in ("output", "log_mass"):
            self.assertLess(0, drift[what]["p50"])
            self.assertLessEqual(drift[what]["p50"], drift[what]["p99"])
        self.assertLess(drift["overlap"]["mean"], 1)
        self.assertEqual([(h["layer"], h["head"]) for h in drift["heads"]], [(layer, head) for layer in range(2) for head in range(4)])
        means = [sum(h["output"] for h in drift["heads"] if h["layer"] == layer) / 4 for layer in range(2)]
        self.assertEqual(drift["worst_layer"], means.index(max(means)))
        self.assertAlmostEqual(drift["worst_output"], max(means), places=9)
        self.assertGreater(drift["bytes"], 0)
        (line,) = [line for line in self.outcome.err.splitlines() if line.startswith("drift ")]
        self.assertIn("outside the budget", line)

    def test_layers_can_be_chosen(self):
        drift = self.run_report("--kv-shadow", "every=100,layers=1-1")["drift"]
        self.assertEqual({head["layer"] for head in drift["heads"]}, {1})

    def test_heads_that_keep_everything_do_not_drift(self):
        heads = self.heads_file(*[(layer, head) for layer in range(2) for head in range(4)])
        drift = self.run_report("--exact", "--kv-shadow", "every=64", heads=heads)["drift"]
        self.assertLess(drift["output"]["p99"], 1e-4)
        self.assertGreater(drift["overlap"]["mean"], 0.999)

    def test_it_needs_a_procedural_memory_and_words_that_make_sense(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-f", TEXT, "-n", 0, "--kv-proc", "off", "--kv-shadow", "every=9"), USAGE, "shadow")
        for value, part in (("every=0", "every="), ("often", "'often'"), ("layers=5-6", "layers 0-1")):
            self.refused("--kv-shadow", value, parts=(part,))


class Spilling(ProceduralTest):
    def test_rows_in_the_file_are_read_as_if_they_were_in_memory(self):
        # Beyond the trained length every block is summed by itself, wherever it lies: the bits are the same.
        heads, path = self.heads_file((0, 0), (1, 2)), self.folder / "spill"
        kept = self.run_report(heads=heads)
        spilled = self.run_report("--kv-full-rows", 256, "--kv-spill", path, heads=heads)
        self.assertEqual(spilled["logits_hash"], kept["logits_hash"])
        self.assertEqual(spilled["rows"]["full"], kept["rows"]["full"])
        self.assertGreaterEqual(spilled["rows"]["spilled"], 2 * (SEALED - 256 - BLOCK))
        # Heads of 8 numbers in f16: keys and values.
        self.assertEqual(spilled["kv_spill_bytes"], spilled["rows"]["spilled"] * 2 * 16)
        self.assertLess(spilled["kv_bytes"] + spilled["kv_spill_bytes"] // 2, kept["kv_bytes"])
        self.assertFalse(path.exists())

    def test_a_file_that_is_there_is_never_overwritten(self):
        path = self.file("precious", b"precious")
        self.refused("--kv-spill", path, status=IO, parts=("precious", "exists"))
        self.assertEqual(path.read_bytes(), b"precious")

    def test_a_disk_without_room_is_an_error_and_not_a_signal(self):
        heads = self.heads_file((0, 0))
        words = ("run", "-m", LLAMA, "-f", self.text, "-n", 0, *SHAPE, "--kv-heads", heads, "--kv-full-rows", 256)

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        outcome = kvtide(*words, "--kv-spill", self.folder / "spill", preexec_fn=small_files)
        self.assertEqual(outcome.status, IO, outcome.err)
        self.assertIn("spill file", outcome.err)


if __name__ == "__main__":
    unittest.main()
