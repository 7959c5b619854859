"""The commands that judge memories: ppl --against, copytest, recall, table and plan."""

import json
import math
import time
import unittest

import word_model
from program import LLAMA, TEXT, TIMEOUT_S, ProgramTest, interrupt, kvtide, start

USAGE, NOT_FOUND, UNSUPPORTED, IO, CANCELLED = 2, 3, 5, 8, 130
SMALL = ("--kv-window", 64, "--kv-block", 32, "--kv-salient", 6, "--kv-r", 2, "--kv-heads", "even")
PROCEDURAL = ("--kv-proc", "on", *SMALL)


class JudgingTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = word_model.write(self.folder / "words.gguf")

    def prose(self, times=40):
        return self.file("prose.txt", b"a sailor went to the market and came home when it was dark. " * times)


class Against(JudgingTest):
    def score(self, *words):
        text = self.file("text.txt", TEXT.read_bytes() * 4)
        return self.assert_fine(kvtide("ppl", "-m", LLAMA, "-f", text, "--stream", "-c", 256, "--bucket", 100, "--json",
                                       "--against", "full", *words)).json  # fmt: skip

    def test_buckets_hold_the_promised_keys_and_the_perplexities_of_separate_runs(self):
        rolling = ("--overflow", "rolling", "--kv-window", 40)
        score = self.score(*rolling)
        text = self.folder / "text.txt"
        words = ("ppl", "-m", LLAMA, "-f", text, "--stream", "-c", 256, "--bucket", 100, "--json")
        full = self.assert_fine(kvtide(*words)).json
        alone = self.assert_fine(kvtide(*words, "--overflow", "rolling", "--kv-window", 40, "-c", 320)).json
        self.assertEqual([(b["first"], b["last"]) for b in score["buckets"]], [(0, 100), (100, 200), (200, 256)])
        for bucket, kept, windowed in zip(score["buckets"], full["buckets"], alone["buckets"]):
            self.assertAlmostEqual(bucket["full_ppl"], kept["ppl"], places=3)
            if bucket["last"] <= 200:  # the last bucket of the other run is longer
                self.assertAlmostEqual(bucket["ppl"], windowed["ppl"], places=3)
                self.assertAlmostEqual(bucket["ppl_se"], windowed["ppl_se"], places=2)
            self.assertAlmostEqual(bucket["dppl"], bucket["ppl"] / bucket["full_ppl"] - 1, places=5)
            self.assertLessEqual(bucket["dppl_low"], bucket["dppl"])
            self.assertLessEqual(bucket["dppl"], bucket["dppl_high"])
            self.assertGreaterEqual(bucket["kl_p99"], bucket["kl"])
        self.assertGreater(score["buckets"][2]["kl"], 0)
        self.assertLess(score["buckets"][2]["agreement"], 1)
        self.assertEqual(score["control"], "the full f16 cache")

    def test_a_full_cache_loses_nothing_against_itself(self):
        score = self.score()
        self.assertEqual((score["dppl"], score["dppl_low"], score["dppl_high"], score["kl"]), (0, 0, 0, 0))
        self.assertEqual(score["agreement"], 1)

    def test_a_window_of_as_many_bytes_may_stand_beside(self):
        words = ("ppl", "-m", self.model, "-f", self.prose(), "--stream", "--json", "--against", "window", *PROCEDURAL)
        score = self.assert_fine(kvtide(*words)).json
        self.assertRegex(score["control"], r"^4 sinks and the newest [\d,]+, q8_0$")
        rows = int(score["control"].split()[5].replace(",", ""))
        alone = self.assert_fine(kvtide("ppl", "-m", self.model, "-f", self.prose(), "--stream", "--json", "--overflow",
                                        "rolling", "--kv-sinks", 4, "--kv-window", rows, "-ctk", "q8_0", "-ctv",
                                        "q8_0")).json  # fmt: skip
        self.assertAlmostEqual(score["window_ppl"] / alone["ppl"], 1, places=4)
        self.assertAlmostEqual(score["dppl"], score["ppl"] / score["window_ppl"] - 1, places=5)
        self.assertIn("window_kv_bytes", score)

    def test_beyond_the_trained_context_the_control_is_named(self):
        text = self.file("long.txt", TEXT.read_bytes() * 5)
        outcome = self.assert_fine(kvtide("ppl", "-m", LLAMA, "-f", text, "--stream", "--against", "full", "--overflow",
                                          "rolling", "--kv-window", 40))  # fmt: skip
        self.assertIn("a full f16 cache over the newest 256 tokens", outcome.err)
        self.assertRegex(outcome.text.splitlines()[0], r"^positions +ppl +full +dPPL")
        self.assertTrue(outcome.text.splitlines()[-1].startswith("all "))

    def test_what_makes_no_sense_is_refused(self):
        self.assert_refused(kvtide("ppl", "-m", LLAMA, "-f", TEXT, "--against", "full"), USAGE, "--against", "--stream")
        self.assert_refused(kvtide("ppl", "-m", LLAMA, "-f", TEXT, "--stream", "--against", "half"), USAGE, "full or window")
        self.assert_refused(kvtide("ppl", "-m", LLAMA, "-f", TEXT, "--stream", "--against", "full", "--out", "x"), USAGE,
                            "--out")  # fmt: skip


class Copytest(JudgingTest):
    def test_three_memories_stand_side_by_side(self):
        answer = self.assert_fine(kvtide("copytest", "-m", self.model, "-f", self.prose(), "--ctx", 800, "--at", "10,80",
                                         "--json", *PROCEDURAL)).json  # fmt: skip
        self.assertEqual([s["string"] for s in answer["strings"]], ["copy 10%", "copy 80%"])
        for string in answer["strings"]:
            self.assertAlmostEqual(string["back"], (800 - 96) * (0.9 if "10" in string["string"] else 0.2) + 48, delta=40)
            self.assertEqual(string["control_fails"], string["full_nll"] >= answer["chance"])
        self.assertAlmostEqual(answer["chance"], math.log(word_model.WORDS))
        self.assertAlmostEqual(answer["nll"], sum(s["nll"] for s in answer["strings"]) / 2)
        self.assertLess(answer["kv_bytes"], answer["full_kv_bytes"])
        # q8_0 rows of a layer and head: 2 x 34 bytes, in two layers.
        self.assertRegex(answer["window"], r"^4 sinks and the newest \d+, q8_0$")

    def test_a_window_that_still_holds_the_strings_is_told_with_what_would_show_more(self):
        held = self.assert_fine(kvtide("copytest", "-m", self.model, "--ctx", 400, "--at", "10,60", "--kv-budget", "1M"))
        self.assertIn("the plain window still holds every string when asked", held.err)
        self.assertEqual(held.text.count("(held)"), 2)
        advised = int(held.err.split("--ctx ")[1].split()[0])
        words = ("copytest", "-m", self.model, "--at", 10, "--kv-budget", "1M", "--json", "--ctx")
        outcome = kvtide(*words, advised)
        self.assertNotIn("still holds", outcome.err)
        self.assertFalse(outcome.json["strings"][0]["window_holds"])
        self.assertTrue(kvtide(*words, advised // 2).json["strings"][0]["window_holds"])

        partly = kvtide("copytest", "-m", self.model, "--ctx", 1600, "--at", "10,90", *PROCEDURAL)
        self.assertIn("still holds 1 of the strings when asked", partly.err)
        short = kvtide("copytest", "-m", self.model, "-f", self.prose(10), "--ctx", 400, "--at", 10, "--kv-budget", "1M")
        self.assertIn(f"--ctx {advised} and a longer text", short.err)
        kept = kvtide("copytest", "-m", self.model, "--ctx", 400)
        self.assertIn("keeps everything, so nothing can be lost; --kv-budget", kept.err)

    def test_without_a_policy_everything_is_kept_and_nothing_lost(self):
        answer = self.assert_fine(kvtide("copytest", "-m", self.model, "--ctx", 600, "--json")).json
        self.assertEqual([s["nll"] for s in answer["strings"]], [s["full_nll"] for s in answer["strings"]])
        plain = self.assert_fine(kvtide("copytest", "-m", self.model, "--ctx", 600)).text.splitlines()
        self.assertEqual([line.split("  ")[0] for line in plain[:5]], ["string", "copy 7%", "copy 35%", "copy 63%", "mean"])

    def test_alone_it_is_what_it_is_beside_others(self):
        words = ("copytest", "-m", self.model, "-f", self.prose(), "--ctx", 800, "--at", "10,80", *PROCEDURAL)
        alone, beside = (self.assert_fine(kvtide(*words, "--json", *more)).json for more in (["--alone"], []))
        self.assertEqual([s["nll"] for s in alone["strings"]], [s["nll"] for s in beside["strings"]])
        self.assertEqual(alone["kv_bytes"], beside["kv_bytes"])
        self.assertEqual([name for name in alone if "full" in name or "window" in name or name == "control"], [])
        plain = self.assert_fine(kvtide(*words, "--alone"))
        self.assertNotIn("against", plain.err)
        self.assertEqual(plain.text.splitlines()[0].split(), ["string", "tokens", "back", "this"])

    def test_refusals(self):
        self.assert_refused(kvtide("copytest", "-m", LLAMA, "--ctx", 200, "--at", 50), UNSUPPORTED, "too few plain words")
        self.assert_refused(kvtide("copytest", "-m", self.model, "--ctx", 100), USAGE, "more than 144 tokens, not 100")
        self.assert_refused(kvtide("copytest", "-m", self.model, "-f", self.prose(2), "--ctx", 900), USAGE,
                            "prose.txt", "756 are needed")  # fmt: skip
        self.assert_refused(kvtide("copytest", "-m", self.model, "--at", "10,101"), USAGE, "--at", "0 to 100")


class Ruler(JudgingTest):
    def test_every_task_is_answered_by_memories_of_several_sizes(self):
        answer = self.assert_fine(kvtide("ruler", "-m", self.model, "-f", self.prose(), "--ctx", 700, "--samples", 2,
                                         "--ratios", 1, "--kv-heads", "even", "--json")).json  # fmt: skip
        self.assertEqual([c["task"] for c in answer["cells"]],
                         ["single-1", "single-2", "single-3", "multikey-1", "multikey-2", "multikey-3", "multivalue",
                          "multiquery", "variables", "common", "frequent"])  # fmt: skip
        for cell in answer["cells"]:
            self.assertEqual(cell["full"]["nll_above_full"], 0)
            self.assertGreater(cell["nothing"]["nll"], 0)
            self.assertEqual([m["memory"] for m in cell["memories"]], ["1x"])
            self.assertTrue(0 <= cell["full"]["right"] <= 1)

    def test_one_memory_as_the_flags_say_and_batches_that_go_on(self):
        words = ("ruler", "-m", self.model, "--ctx", 600, "--tasks", "single-2,variables", "--json")
        both = self.assert_fine(kvtide(*words, "--samples", 2)).json
        first, second = (self.assert_fine(kvtide(*words, "--samples", 1, "--first", n)).json for n in (0, 1))
        for cell, one, other in zip(both["cells"], first["cells"], second["cells"], strict=True):
            self.assertAlmostEqual(cell["full"]["nll"], (one["full"]["nll"] + other["full"]["nll"]) / 2, places=5)
            self.assertEqual(cell["memories"][0]["nll_above_full"], 0)
        plain = self.assert_fine(kvtide("ruler", "-m", self.model, "--ctx", 600, "--tasks", "single-2", "--samples", 1))
        self.assertIn("no text", plain.text)

    def test_pinned_positions_are_pinned_here_too(self):
        words = ("ruler", "-m", self.model, "--ctx", 600, "--tasks", "instructions", "--samples", 2, "--json", *PROCEDURAL)
        usual, pinned = (self.assert_fine(kvtide(*words, *more)).json["cells"][0] for more in ((), ("--kv-pin", "0-50")))
        self.assertEqual(usual["full"], pinned["full"])
        self.assertNotEqual(usual["memories"], pinned["memories"])

    def test_samples_are_written_so_that_others_can_ask_the_same(self):
        out = self.folder / "samples.jsonl"
        answer = self.assert_fine(kvtide("ruler", "-m", self.model, "--ctx", 600, "--tasks", "multivalue", "--samples", 2,
                                         "--first", 3, "--json", "--out", out)).json["cells"][0]  # fmt: skip
        samples = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        self.assertEqual([(s["task"], s["ctx"], s["sample"]) for s in samples], [("multivalue", 600, 3), ("multivalue", 600, 4)])
        for sample in samples:
            first, last = sample["answers"][0][0], sample["answers"][-1][1]
            self.assertTrue(0 < sample["question"] < first < last == len(sample["tokens"]) <= 600)
        for name in ("nll", "right"):
            self.assertAlmostEqual(sum(s["full"][name] for s in samples) / 2, answer["full"][name])
        self.assertEqual(samples[1]["memories"][0]["kv_bytes"], answer["memories"][0]["kv_bytes"])
        self.assert_refused(kvtide("ruler", "-m", self.model, "--out", self.folder / "none" / "x"), IO, "none")

    def test_refusals(self):
        self.assert_refused(kvtide("ruler", "-m", self.model, "--tasks", "needles"), USAGE, "multikey-1", "'needles'")
        self.assert_refused(kvtide("ruler", "-m", self.model, "--kv-pin", "system", *PROCEDURAL), USAGE, "--kv-pin system")
        self.assert_refused(kvtide("ruler", "-m", self.model, "--ctx", 100, "--samples", 1), USAGE, "no room")


class Recall(JudgingTest):
    def test_a_cell_for_every_length_and_depth_with_its_control(self):
        answer = self.assert_fine(kvtide("recall", "-m", self.model, "--ctx", "700,900", "--depth", "10,90", "--needles", 3,
                                         "--json", *PROCEDURAL)).json  # fmt: skip
        self.assertEqual([(c["ctx"], c["depth"]) for c in answer["cells"]], [(700, 10), (700, 90), (900, 10), (900, 90)])
        for cell in answer["cells"]:
            self.assertEqual(cell["key_control_fails"], not cell["full"]["key_right"])
            self.assertEqual(cell["pairs_control_fails"], cell["full"]["pairs_right"] < 1.5)
            # A random model knows nothing: no better than a guess, and far from certain.
            self.assertGreater(cell["full"]["key_nll"], 1)
        self.assertLess(answer["cells"][0]["position"], answer["cells"][1]["position"])
        self.assertEqual([m["ctx"] for m in answer["memories"]], [700, 900])
        self.assertLess(answer["memories"][0]["kv_bytes"], answer["memories"][0]["full_kv_bytes"])

    def test_the_same_text_gives_the_same_answers_whoever_keeps_everything(self):
        answer = self.assert_fine(kvtide("recall", "-m", self.model, "-f", self.prose(), "--ctx", 600, "--json")).json
        for cell in answer["cells"]:
            self.assertEqual(cell["full"], cell["policy"])

    def test_the_table_says_where_the_control_fails(self):
        lines = self.assert_fine(kvtide("recall", "-m", self.model, "--ctx", 600, "--depth", 50)).text.splitlines()
        self.assertRegex(lines[1], r"^600 +50% +wrong [\d.]+ +control fails +\d of 8 +[\d.]+ +control fails$")

    def test_refusals(self):
        self.assert_refused(kvtide("recall", "-m", LLAMA, "--ctx", 200), UNSUPPORTED, "the vocabulary has 0 plain words")
        self.assert_refused(kvtide("recall", "-m", self.model, "--ctx", 70), USAGE, "no room", "or more are needed")
        self.assert_refused(kvtide("recall", "-m", self.model, "--needles", 0), USAGE, "--needles")
        self.assert_refused(kvtide("recall", "-m", self.model, "--overflow", "refill"), USAGE, "refill")


class Table(JudgingTest):
    def table(self, *words):
        return kvtide("table", "-m", self.model, "-f", self.prose(), "--ctx", 900, "--out", self.folder / "out", *words)

    def test_cells_gates_and_files(self):
        outcome = self.assert_fine(self.table("--presets", "minimal", "--budgets", "1M", "--json"))
        cells = outcome.json["cells"]
        names = [cell["policy"] for cell in cells]
        self.assertEqual(names[:3], ["full f16", "full q8_0", "minimal"])
        self.assertTrue(names[3].startswith("window of ") and names[3].endswith("(bytes of minimal)"))
        self.assertEqual(names[4:6], ["plain recipe, minimal", "budget 1.0 MiB"])
        for cell in cells:
            self.assertEqual((cell["model"], cell["ctx"], cell["note"]), ("words", 900, ""))
            for name in ("prefill_tok_s", "decode_tok_s", "kv_bytes", "rss_bytes", "ppl", "copy_nll", "key_nll"):
                self.assertGreater(cell[name], 0, (cell["policy"], name))
            self.assertGreater(cell["distinct_3"], 0)
            self.assertLessEqual(cell["distinct_3"], 1)
        self.assertEqual((cells[0]["dppl"], cells[0]["kl"], cells[0]["gates"]), (0, 0, {}))
        self.assertLess(cells[1]["kv_bytes"], cells[0]["kv_bytes"])
        for cell in cells[1:]:
            self.assertEqual(cell["gates"]["B"], cell["dppl"] <= 0.02)
            self.assertEqual(cell["gates"]["A"], cells[0]["distinct_3"] - cell["distinct_3"] <= 0.2)
            self.assertEqual(cell["gates"]["C"], cell["rss_swing"] <= 4 << 20 if cell["bounded"] else None)
            self.assertEqual(cell["gates"]["D"], cell["dppl_q4"] - cell["dppl_q2"] <= 0.01)
        self.assertEqual(json.loads((self.folder / "out" / "table.json").read_text("utf-8")), outcome.json)
        markdown = (self.folder / "out" / "table.md").read_text("utf-8").splitlines()
        self.assertEqual(len([line for line in markdown if line.startswith("| words | 900 |")]), len(cells))
        self.assertIn("prose.txt", markdown[-1])
        self.assertNotIn(str(self.folder), "\n".join(markdown))

        # What is there is not measured again; what is damaged or gone is.
        files = sorted((self.folder / "out" / "cells").iterdir())
        self.assertEqual(len(files), len(cells))
        files[0].write_text("{", "utf-8")
        files[1].unlink()
        stamps = {file: file.stat().st_mtime_ns for file in files[2:]}
        again = self.assert_fine(self.table("--presets", "minimal", "--budgets", "1M", "--json")).json["cells"]
        self.assertEqual({file: file.stat().st_mtime_ns for file in files[2:]}, stamps)
        self.assertEqual([cell["ppl"] for cell in again], [cell["ppl"] for cell in cells])
        self.assertEqual(sum(a["prefill_tok_s"] == b["prefill_tok_s"] for a, b in zip(again, cells)), len(cells) - 2)

    def test_what_does_not_fit_is_said_in_its_line(self):
        text = self.prose(80)
        outcome = self.assert_fine(kvtide("table", "-m", self.model, "-f", text, "--ctx", 1200, "--presets", "minimal",
                                          "--out", self.folder / "out"))  # fmt: skip
        lines = outcome.text.splitlines()
        self.assertIn("full f16, newest 1,024", lines[2])
        self.assertIn("does not fit: trained for 1,024 tokens", lines[3])

    def test_refusals(self):
        out = self.folder / "out"
        self.assert_refused(kvtide("table", "-m", self.model, "--out", out), USAGE, "-f FILE is missing")
        self.assert_refused(kvtide("table", "-m", self.model, "-f", self.prose()), USAGE, "--out FOLDER is missing")
        self.assert_refused(self.table("--presets", "large"), USAGE, "minimal, balanced and faithful", "large")
        self.assert_refused(self.table("--ctx", 100), USAGE, "more than", "not 100")
        self.assert_refused(self.table("--ctx", 100000), USAGE, "prose.txt", "--ctx 100000 needs a longer text")
        self.assert_refused(kvtide("table", "-m", LLAMA, "-f", self.prose(), "--out", out, "--ctx", 900), UNSUPPORTED,
                            "plain words")  # fmt: skip


class Plan(JudgingTest):
    def plan(self, *words):
        return self.assert_fine(kvtide("plan", "--json", *words)).json

    def test_a_plan_tells_what_a_run_of_the_model_states(self):
        plan = self.plan("-m", self.model, "--ctx", 500, *SMALL)
        run = self.assert_fine(kvtide("run", "-m", self.model, "-c", 500, "-f", self.prose(), "-n", 0, *PROCEDURAL))
        stated = float(run.err.split("at most ")[1].split(" KiB")[0])
        self.assertAlmostEqual(plan["total_bytes"] / 1024, stated, delta=0.06)
        shape = self.plan("--layers", 2, "--heads", 2, "--kv-heads", 1, "--head-dim", 32, "--trained", 1024, "--kv-heads",
                          "even", "--ctx", 500, *SMALL[:-2])  # fmt: skip
        self.assertEqual(shape["bytes"], plan["bytes"])

    def test_a_budget_is_kept_and_what_it_picks_is_said(self):
        plan = self.plan("--like", "mistral-7b", "--ctx", 100000, "--budget", "1G")
        self.assertLessEqual(plan["total_bytes"], 1 << 30)
        self.assertEqual(plan["total_bytes"], sum(plan["bytes"].values()))
        # 32 layers, 8 heads of 128, keys and values of two bytes.
        self.assertEqual(plan["full_cache_bytes"], 100000 * 32 * 8 * 128 * 2 * 2)
        self.assertEqual(plan["full_heads"] + plan["plain_heads"], 32 * 8)
        self.assertEqual(plan["full_heads"], 17)
        seen = plan["total_bytes"] - plan["bytes"]["references"]
        self.assertAlmostEqual(plan["write_tok_s"] * (plan["read_weights_bytes"] + seen), plan["limits"]["read_gb_s"] * 1e9,
                               delta=1e3)  # fmt: skip
        text = self.assert_fine(kvtide("plan", "--like", "mistral-7b", "--ctx", 100000, "--budget", "1G")).text
        for word in ("window and sinks", "heads that keep every row", "of 1.00 GiB", "picked:", "measured here: memory gives "):
            self.assertIn(word, text)

    def test_the_ladder_tells_what_budgets_buy(self):
        plan = self.plan("--like", "mistral-7b", "--ctx", 32768, "--ladder")
        lines = [line for line in plan["ladder"] if "refused" not in line]
        self.assertGreater(len(lines), 6)
        for line in lines:
            self.assertLessEqual(line["total_bytes"], line["budget"])
        written = [line["write_tok_s"] for line in lines]
        self.assertEqual(written, sorted(written, reverse=True))
        self.assertTrue(lines[-1]["kept"].startswith("every"), lines[-1]["kept"])
        losses = [line["expected_kl"] for line in lines if "expected_kl" in line]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertGreater(len(losses), 5)
        self.assertEqual(lines[-1]["measured"]["ctx"], 8192)
        text = self.assert_fine(kvtide("plan", "--like", "mistral-7b", "--ctx", 32768, "--ladder")).text
        for word in ("budget", "17 of 256 heads keep", "every row; the newest", "= exact rows", "loss: that of SmolLM2-135M", "KL per token"):
            self.assertIn(word, text)
        # Longer than the model was trained for: a full cache, of which the loss is told, is no measure.
        longer = self.assert_fine(kvtide("plan", "--like", "mistral-7b", "--ctx", 65536, "--ladder")).text
        self.assertIn("not measured", longer)
        self.assertIn("loss: unknown beyond the 32,768 tokens", longer)
        self.assertNotIn("expected_kl", self.plan("--like", "mistral-7b", "--ctx", 65536, "--budget", "1G"))
        self.assertIn("too small: use at least", self.assert_fine(kvtide("plan", "--like", "mistral-7b", "--ctx", 512, "--ladder")).text)
        self.assert_refused(kvtide("plan", "--like", "mistral-7b", "--ladder", "--budget", "1G"), USAGE, "leave out the one that is given")

    def test_known_models_with_layers_of_several_kinds_tell_what_a_token_and_a_checkpoint_cost(self):
        plan = self.plan("--like", "lfm2-1.2b", "--ctx", 4096)
        # 6 layers of 8 KV heads of 64, keys and values of two bytes; 10 that carry two columns of 2,048 floats.
        self.assertEqual(plan["token_bytes"], 6 * 8 * 64 * 2 * 2)
        self.assertEqual(plan["carried_bytes"], 10 * 2 * 2048 * 4)
        self.assertEqual(plan["checkpoint_bytes"], plan["carried_bytes"])
        oss = self.plan("--like", "gpt-oss-20b", "--ctx", 4096)
        self.assertEqual(oss["token_bytes"], 24 * 8 * 64 * 2 * 2)
        self.assertEqual(oss["carried_bytes"], 0)
        self.assertGreaterEqual(oss["checkpoint_bytes"], 12 * 128 * 8 * 64 * 2 * 2)
        self.assertLess(oss["read_weights_bytes"], oss["weights_bytes"] / 4)
        text = self.assert_fine(kvtide("plan", "--like", "deepseek-v3", "--ctx", 4096)).text
        self.assertIn("a token: ", text)
        self.assertIn("of which a token reads", text)
        self.assert_refused(kvtide("plan", "--like", "lfm2-1.2b", "--layers", 3), USAGE, "do not change this shape")

    def test_refusals(self):
        self.assert_refused(kvtide("plan"), USAGE, "-m, --like")
        self.assert_refused(kvtide("plan", "--like", "gpt-9"), USAGE, "mistral-7b, llama-3.1-8b")
        self.assert_refused(kvtide("plan", "--like", "mistral-7b", "--budget", "2M"), USAGE, "too small", "use at least")
        self.assert_refused(kvtide("plan", "-m", self.model, "--like", "mistral-7b"), USAGE, "leave out --like")
        self.assert_refused(kvtide("plan", "--like", "mistral-7b", "--kv-proc", "off"), USAGE, "nothing to plan")
        self.assert_refused(kvtide("plan", "-m", self.folder / "none.gguf"), NOT_FOUND, "none.gguf")


class Interrupted(JudgingTest):
    def test_a_table_that_is_interrupted_keeps_its_finished_cells(self):
        process = start("table", "-m", self.model, "-f", self.prose(400), "--ctx", 9000, "--presets", "minimal", "--out",
                        self.folder / "out")  # fmt: skip
        cells = self.folder / "out" / "cells"
        end = time.monotonic() + TIMEOUT_S
        while process.poll() is None and not (cells.is_dir() and any(cells.iterdir())):
            if time.monotonic() > end:
                process.kill()
                self.fail(f"waited {TIMEOUT_S} s for the first cell of the table")
            time.sleep(0.01)
        outcome = interrupt(process)
        self.assertEqual(outcome.status, CANCELLED, outcome.err)
        self.assertTrue(any(name.suffix == ".json" for name in cells.iterdir()))


if __name__ == "__main__":
    unittest.main()
