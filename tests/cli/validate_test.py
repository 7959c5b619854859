"""kvtide validate: the verdict and its exit status, JSON, pages and pictures, folders of golden arrays."""

import json
import shutil
import unittest

from program import LLAMA, MODELS, TEXT, ProgramTest, kvtide

USAGE, NOT_FOUND, BAD_FORMAT, IO, INVALID = 2, 3, 4, 8, 12
FOLDERS = MODELS.parent / "folders"
GOLDEN = MODELS.parent / "validate" / "gemma3-f32"
GEMMA = FOLDERS / "gemma3-f32"
EXACT = ("--exact", "-ctk", "f32", "-ctv", "f32")


class Verdict(ProgramTest):
    def test_a_correct_model_passes_and_every_check_is_named(self):
        outcome = self.assert_fine(kvtide("validate", LLAMA, "--tokens", 24))
        self.assertTrue(outcome.text.startswith("PASSED: llama-mha-untied, against a plain f32 forward pass"), outcome.text)
        for check in ("isolated layers", "chained layers", "logits", "calls of any length", "rows of the state", "poison",
                      "taking tokens back", "fork", "snapshot", "two sequences", "a full state", "free running"):  # fmt: skip
            self.assertRegex(outcome.text, rf"passed +{check}")

    def test_a_model_that_differs_from_its_golden_arrays_fails_with_a_status_of_its_own_and_names_the_layer(self):
        folder = self.folder / "golden"
        shutil.copytree(GOLDEN, folder)
        # The reference's keys of layer 1 and its values change places: head 0 holds something else there.
        (folder / "keys.1.npy").rename(folder / "spare.npy")
        (folder / "values.1.npy").rename(folder / "keys.1.npy")
        (folder / "spare.npy").rename(folder / "values.1.npy")
        outcome = kvtide("validate", GEMMA, "--reference", folder, *EXACT)
        self.assertEqual(outcome.status, INVALID, outcome.err)
        self.assertTrue(outcome.text.startswith("FAILED: "), outcome.text)
        self.assertRegex(outcome.text, r"1\. \w+ \(layer 1, token 0")
        self.assertRegex(outcome.text, r"passed +isolated layers")
        self.assertRegex(outcome.text, r"failed +rows of the state")
        self.assertIn("What to do:", outcome.text)

    def test_float_weights_are_judged_exactly_unless_the_arithmetic_of_every_day_is_asked_for(self):
        outcome = self.assert_fine(kvtide("validate", LLAMA, "--tokens", 24))
        self.assertIn("gate 0.9999\n  arithmetic of the model: f32 throughout, keys f16, values f16", outcome.text)
        outcome = self.assert_fine(kvtide("validate", LLAMA, "--tokens", 24, "--no-exact"))
        self.assertIn("gate 0.999\n  arithmetic of the model: attention in bf16, keys f16", outcome.text)
        outcome = self.assert_fine(kvtide("validate", FOLDERS / "qwen3-i8", "--tokens", 24))
        self.assertIn("gate 0.97\n  arithmetic of the model: attention in bf16, products of 8-bit integers", outcome.text)
        self.assert_refused(kvtide("validate", LLAMA, "--exact", "--no-exact"), USAGE, "one of the two")

    def test_a_folder_of_shards_is_judged_by_the_weights_that_it_holds_and_by_golden_arrays(self):
        shards = self.folder / "shards"
        words = ("shard", "export", "-m", GEMMA, "-o", shards, "--slots", 100)
        self.assert_fine(kvtide(*words, "--type", "int8", "--min-elements", 1))
        outcome = self.assert_fine(kvtide("validate", shards, "--tokens", 24))
        self.assertRegex(outcome.text, r"^PASSED \(weights not compared\): gemma3-f32 in 8 shards \(int8, .*\), against a plain f32 .* gate 0.9999")
        outcome = self.assert_fine(kvtide("validate", shards, "--reference", GOLDEN))
        self.assertIn("gate 0.97", outcome.text)
        self.assertEqual(kvtide("validate", shards, "--reference", GOLDEN, "--gate", 0.999999).status, INVALID)
        outcome = self.assert_fine(kvtide("validate", shards, "--reference", GEMMA, "--tokens", 24))
        self.assertTrue(outcome.text.startswith("PASSED: gemma3-f32 in 8 shards"), outcome.text)
        for check in ("manifest", "weights", "vocabulary"):
            self.assertRegex(outcome.text, rf"passed +{check}")
        outcome = kvtide("validate", shards, "--reference", FOLDERS / "gemma3-other", "--tokens", 24)
        self.assertEqual(outcome.status, NOT_FOUND, outcome.err)
        self.assert_refused(kvtide("validate", shards, "--tokens", 80), USAGE, "need 104 slots; these shards have 100")
        self.assert_refused(kvtide("validate", shards, "--exact"), USAGE, "shards have one arithmetic")

    def test_shards_that_were_edited_are_not_the_models(self):
        shards = self.folder / "shards"
        self.assert_fine(kvtide("shard", "export", "-m", GEMMA, "-o", shards, "--slots", 100))
        manifest = shards / "manifest.json"
        text = manifest.read_text()
        for key in ("norm_epsilon", "eos"):
            edited = json.loads(text)
            if key == "eos":
                edited["eos"] = [7]
            else:
                edited[key] = 0.001
            manifest.write_text(json.dumps(edited))
            outcome = kvtide("validate", shards, "--reference", GEMMA, "--tokens", 24)
            self.assertEqual(outcome.status, INVALID, outcome.text)
            self.assertIn("manifest_differs", outcome.text)

    def test_three_ids_are_a_text(self):
        outcome = self.assert_fine(kvtide("validate", LLAMA, "--ids", "42,10,20", "--free", 2, "--json"))
        self.assertEqual(outcome.json["tokens"], [42, 10, 20])
        notes = {note["name"]: note["what"] for note in outcome.json["notes"]}
        self.assertIn("positions 0 to 2", notes["coverage"])
        self.assert_refused(kvtide("validate", LLAMA, "--ids", "42,10,20", "-p", "a"), USAGE, "--ids")

    def test_a_longer_text_passes_windows_and_fills_slots(self):
        outcome = self.assert_fine(kvtide("validate", GEMMA, "--tokens", 8, "--chunks", "1,4", "--free", 2, "--length", 150))
        self.assertRegex(outcome.text, r"passed +chained layers, 150 tokens")
        self.assertIn("positions 0 to 149", outcome.text)
        self.assertNotIn("windows of 4 are NOT reached", outcome.text)
        shards = self.folder / "shards"
        self.assert_fine(kvtide("shard", "export", "-m", LLAMA, "-o", shards, "--slots", 60))
        self.assert_fine(kvtide("validate", shards, "--tokens", 8, "--chunks", "1,4", "--free", 2, "--length", 60))
        words = ("validate", shards, "--tokens", 8, "--length")
        self.assert_refused(kvtide(*words, 61), USAGE, "61 tokens do not fit into 60 slots")
        outcome = kvtide("validate", GEMMA, "--reference", GOLDEN, "--length", 100)
        self.assert_refused(outcome, USAGE, "golden arrays hold one text")

    def test_convolutions_and_experts_need_no_golden_arrays(self):
        outcome = self.assert_fine(kvtide("validate", FOLDERS / "zaya-f16", "--tokens", 24))
        self.assertTrue(outcome.text.startswith("PASSED: zaya-f16, against a plain f32 forward pass"), outcome.text)

    def test_a_gate_that_nothing_reaches_fails(self):
        outcome = kvtide("validate", LLAMA, "--tokens", 12, "--gate", 1)
        self.assertEqual(outcome.status, INVALID)

    def test_arrays_of_transformers_are_met_exactly(self):
        outcome = self.assert_fine(kvtide("validate", GEMMA, "--reference", GOLDEN, "--gate", 0.999999, "--json", *EXACT))
        report = outcome.json
        self.assertTrue(report["passed"])
        self.assertEqual(report["findings"], [])
        self.assertEqual(len(report["tokens"]), 20)
        self.assertEqual({check["outcome"] for check in report["checks"]}, {"passed"})


class Json(ProgramTest):
    def test_every_layer_and_token_has_its_figures_for_every_cut(self):
        report = self.assert_fine(kvtide("validate", LLAMA, "--tokens", 12, "--chunks", "1,5", "--json")).json
        self.assertEqual([s["name"] for s in report["schedules"]],
                         ["calls of 1", "calls of 5", "calls of mixed lengths", "a prompt of 6, then calls of 1"])  # fmt: skip
        self.assertEqual(report["schedules"][1]["calls"], [5, 5, 2])
        for schedule in report["schedules"]:
            for table in (schedule["isolated"], schedule["chained"]):
                size = table["layers"] * table["tokens"]
                self.assertEqual(table["layers"], 2)
                for key in ("change_cosine", "change_max_abs", "sum_cosine", "sum_max_abs"):
                    self.assertEqual(len(table[key]), size)
            self.assertEqual(schedule["top_asked"], sum(schedule["calls"]))

    def test_a_tail_shorter_than_the_calls_is_always_there(self):
        report = self.assert_fine(kvtide("validate", LLAMA, "--tokens", 12, "--chunks", "4", "--json")).json
        self.assertEqual(report["schedules"][0]["calls"], [4, 4, 3])

    def test_the_same_text_gives_the_same_report(self):
        words = ("validate", LLAMA, "-f", TEXT, "--tokens", 16, "--json")
        self.assertEqual(kvtide(*words, "-t", 1).out, kvtide(*words, "-t", 2).out)


class Files(ProgramTest):
    def test_a_page_with_a_map_and_its_scale_is_written(self):
        page = self.folder / "report.html"
        self.assert_fine(kvtide("validate", LLAMA, "--tokens", 12, "--html", page))
        text = page.read_text("utf-8")
        self.assertTrue(text.startswith("<!doctype html>"))
        self.assertIn("worst layers first", text)
        self.assertNotIn("http", text)
        self.assertIn("<svg", text)
        self.assertIn("linear-gradient", text)

    def test_a_page_that_cannot_be_written_is_refused_before_anything_is_computed(self):
        self.assert_refused(kvtide("validate", LLAMA, "--html", self.folder / "no" / "report.html"), IO, "report.html")


class Packages(ProgramTest):
    def test_core_ml_packages_are_compared_with_their_model_layer_by_layer_where_they_show_layers(self):
        model = FOLDERS / "llama-f32"
        for name, more in (("one.mlpackage", ()), ("layers", ("--per-layer",))):
            path = self.folder / name
            self.assert_fine(kvtide("coreml", "export", "-m", model, "-o", path, "--slots", 64, *more))
            outcome = self.assert_fine(kvtide("validate", path, "--reference", model, "--tokens", 12))
            self.assertRegex(outcome.text, r"(passed|skipped) +isolated layers")
            self.assertEqual("skipped isolated layers" in outcome.text, not more)
        other = kvtide("validate", self.folder / "layers", "--reference", FOLDERS / "mistral-f16-shards", "--tokens", 12)
        self.assertEqual(other.status, INVALID, other.text)
        self.assert_refused(kvtide("validate", self.folder / "layers"), USAGE, "--reference", "lint --run")
        self.assert_refused(kvtide("validate", self.folder / "layers", "--exact", "--reference", model), USAGE, "says itself")


class Refusals(ProgramTest):
    def test_a_model_is_needed(self):
        self.assert_refused(kvtide("validate"), USAGE, "MODEL is missing")

    def test_a_folder_without_tokens_names_what_makes_one(self):
        self.assert_refused(kvtide("validate", GEMMA, "--reference", self.folder), NOT_FOUND, "tokens.npy", "golden_arrays.py")

    def test_arrays_of_another_model_are_refused_with_both_shapes(self):
        self.assert_refused(kvtide("validate", LLAMA, "--reference", GOLDEN), USAGE, "3 layers", "the model 2")

    def test_a_broken_array_is_named(self):
        folder = self.folder / "golden"
        shutil.copytree(GOLDEN, folder)
        (folder / "hidden.npy").write_bytes((GOLDEN / "hidden.npy").read_bytes()[:1000])
        self.assert_refused(kvtide("validate", GEMMA, "--reference", folder), BAD_FORMAT, "hidden.npy", "the elements")

    def test_a_text_beside_a_folder_is_refused(self):
        self.assert_refused(kvtide("validate", GEMMA, "--reference", GOLDEN, "-p", "a"), USAGE, "--reference")

    def test_too_few_tokens_are_refused(self):
        self.assert_refused(kvtide("validate", LLAMA, "-p", "a"), USAGE, "at least 3")
        self.assert_refused(kvtide("validate", LLAMA, "--tokens", "2"), USAGE, "--tokens")


if __name__ == "__main__":
    unittest.main()
