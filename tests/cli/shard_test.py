"""kvtide shard: a model exported into files, and the files run as one model."""

import json
import pathlib
import shutil
import tempfile
import unittest

from program import LLAMA, MODELS, ProgramTest, kvtide

FOLDER = MODELS.parent / "folders" / "mistral-f16-shards"
ZAYA = MODELS.parent / "folders" / "zaya-f16"
GEMMA = MODELS / "gemma3-window.gguf"
PROMPT = "the tide comes in and the tide goes out and the tide"


class ShardTest(ProgramTest):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def path(self, name: str) -> str:
        return str(pathlib.Path(self.scratch.name) / name)

    def export(self, model=FOLDER, name="shards", *flags) -> str:
        folder = self.path(name)
        self.assert_fine(kvtide("shard", "export", "-m", model, "-o", folder, "--slots", 200, *flags))
        return folder

    def refused(self, status: int, says: str, *words):
        done = kvtide("shard", *words)
        self.assertEqual(done.status, status, done.err)
        self.assertIn(says, done.err)
        self.assertEqual(done.out, b"")

    def test_an_export_holds_a_file_for_every_part_and_a_manifest(self):
        done = kvtide("shard", "export", "-m", LLAMA, "-o", self.path("a"), "--head-shards", 3, "--json")
        answer = self.assert_fine(done).json
        folder = pathlib.Path(self.path("a"))
        manifest = json.loads((folder / "manifest.json").read_text())
        self.assertEqual(answer["shards"], len(manifest["shards"]))
        self.assertEqual(manifest["t_max"], 4)
        self.assertEqual(manifest["slots"], 2048)
        names = {shard["name"] for shard in manifest["shards"]}
        self.assertTrue({"embedding", "attention.0", "mlp.0", "head.0", "head.2"} <= names)
        files = {shard["file"]: shard["bytes"] for shard in manifest["shards"]}
        for name, size in files.items():
            self.assertEqual((folder / name).stat().st_size, size)
        self.assertEqual(answer["bytes"], sum(files.values()))

    def test_shards_write_what_the_model_writes_with_and_without_drafts(self):
        for model in (FOLDER, ZAYA, GEMMA):
            folder = self.export(model, pathlib.Path(model).name)
            wanted = self.assert_fine(kvtide("run", "-m", model, "-p", PROMPT, "-n", 60, "--exact", "--temp", 0)).out
            plain = self.assert_fine(kvtide("shard", "run", "-m", folder, "-p", PROMPT, "-n", 60))
            drafted = self.assert_fine(kvtide("shard", "run", "-m", folder, "-p", PROMPT, "-n", 60, "--draft", "ngram"))
            self.assertGreater(len(wanted), 10)
            if model != GEMMA:  # weights that are f16 already; the other's lose bits
                self.assertEqual(plain.out, wanted)
            self.assertEqual(drafted.out, plain.out)
            self.assertIn("tok/s", plain.err)
            self.assertRegex(drafted.err, r"drafts: \d+ of \d+ accepted")

    def test_json_says_what_was_written_and_how(self):
        folder = self.export()
        words = ("shard", "run", "-m", folder, "-p", PROMPT, "-n", 30, "--json")
        plain = self.assert_fine(kvtide(*words)).json
        drafted = self.assert_fine(kvtide(*words, "--draft", "ngram")).json
        self.assertEqual(plain["tokens"], drafted["tokens"])
        self.assertEqual(plain["text"], drafted["text"])
        self.assertEqual((plain["drafted"], plain["accepted"]), (0, 0))
        self.assertEqual(plain["calls"], len(plain["tokens"]) - (plain["stop_reason"] == "max_tokens"))
        self.assertEqual(drafted["calls"] + drafted["accepted"], plain["calls"])
        self.assertEqual(plain["slots"], 200)
        self.assertGreater(plain["prompt_tokens"], 10)
        for key in ("prompt_tok_s", "decode_tok_s", "weights_bytes", "state_bytes"):
            self.assertGreater(plain[key], 0)

    def test_what_a_call_takes_is_told_per_layer_and_of_the_head(self):
        folder = self.export()
        words = ("shard", "run", "-m", folder, "-p", PROMPT, "-n", 5)
        self.assertRegex(
            self.assert_fine(kvtide(*words)).err,
            r"a call takes [\d.]+ ms a layer \(attention [\d.]+, feed-forward [\d.]+; layer \d takes most, [\d.]+\) and [\d.]+ ms in the head",
        )
        spent = self.assert_fine(kvtide(*words, "--json")).json["decode_ms"]
        self.assertEqual(len(spent["layers"]), 2)
        for part in (spent["head"], spent["embedding"], *(layer[key] for layer in spent["layers"] for key in ("attention", "mlp"))):
            self.assertGreater(part, 0)

    def test_states_are_sized_before_one_is_made(self):
        folder = self.export()
        answer = self.assert_fine(kvtide("inspect", "-m", folder, "--json")).json
        run = self.assert_fine(kvtide("shard", "run", "-m", folder, "-p", PROMPT, "-n", 1, "--json")).json
        self.assertEqual((answer["format"], answer["slots"]), ("shards", 200))
        self.assertEqual(answer["state_bytes"], run["state_bytes"])
        self.assertEqual(answer["state_bytes_by_slots"]["4096"], 2 * 2 * answer["kv_heads"] * 4096 * answer["head_dim"] * 2)
        self.assertIn("200 slots, as exported", self.assert_fine(kvtide("inspect", "-m", folder)).text)
        plan = self.assert_fine(kvtide("plan", "-m", folder, "--ctx", 4096, "--json")).json
        self.assertEqual(plan["state_bytes"], answer["state_bytes_by_slots"]["4096"])
        self.assertEqual(plan["exported_state_bytes"], answer["state_bytes"])
        self.assertIn("--slots 4096 makes more", self.assert_fine(kvtide("plan", "-m", folder, "--ctx", 4096)).text)
        done = kvtide("plan", "-m", folder, "--kv-budget", "1M")
        self.assertEqual(done.status, 2)
        self.assertIn("the states of shards keep every row", done.err)

    def test_int8_takes_the_flags_that_it_has(self):
        for flags in (("--scales", "tensor"), ("--scales", "channel", "--min-elements", 1, "--keep-f16", "head,query")):
            folder = self.export(LLAMA, flags[1], "--type", "int8", *flags)
            answer = self.assert_fine(kvtide("shard", "run", "-m", folder, "-p", "the tide", "-n", 5, "--json")).json
            self.assertEqual(len(answer["tokens"]), 5)
        manifest = json.loads(pathlib.Path(self.path("channel"), "manifest.json").read_text())
        types = {tensor["dtype"] for shard in manifest["shards"] for tensor in shard["tensors"].values()}
        self.assertEqual(types, {"I8", "F16", "F32"})

    def test_a_folder_without_its_model_still_has_the_tokenizer(self):
        model = self.path("model")
        shutil.copytree(FOLDER, model)
        folder = self.export(model)
        shutil.rmtree(model)
        self.assert_fine(kvtide("shard", "run", "-m", folder, "-p", "the tide", "-n", 3))

    def test_slots_that_are_used_up_end_the_answer(self):
        folder = self.path("few")
        self.assert_fine(kvtide("shard", "export", "-m", FOLDER, "-o", folder, "--slots", 30))
        done = kvtide("shard", "run", "-m", folder, "-p", "the tide", "-n", 100)
        self.assertIn("all 30 slots are in use", done.err)
        self.assertEqual(done.status, kvtide("run", "-m", FOLDER, "-p", "the tide", "-n", 100, "-c", 30).status)

    def test_requests_that_make_no_sense_are_refused(self):
        folder = self.export()
        self.refused(2, "say what to do", "-m", folder)
        self.refused(2, "there is no action 'exprt'", "exprt", "-m", folder)
        self.refused(2, "-m is missing", "run", "-p", "a")
        self.refused(2, "-o FOLDER is missing", "export", "-m", str(LLAMA))
        self.refused(2, "kvtide shard run takes no -o", "run", "-m", folder, "-p", "a", "-o", "b")
        self.refused(2, "kvtide shard export takes no --draft", "export", "-m", folder, "-o", "b", "--draft", "ngram")
        self.refused(2, "only with --type int8", "export", "-m", str(LLAMA), "-o", self.path("b"), "--scales", "tensor")
        self.refused(2, "there are f16 and int8, not 'int4'", "export", "-m", str(LLAMA), "-o", "b", "--type", "int4")
        self.refused(2, "there is ngram, not 'model'", "run", "-m", folder, "-p", "a", "--draft", "model")
        self.refused(2, "is there already", "export", "-m", str(LLAMA), "-o", folder)
        self.refused(2, "no matrix 'kwery'", "export", "-m", str(LLAMA), "-o", self.path("c"), "--type", "int8",
                     "--keep-f16", "kwery")  # fmt: skip
        self.assertFalse(pathlib.Path(self.path("c")).exists())

    def test_damage_is_refused_before_the_first_token(self):
        folder = pathlib.Path(self.export())
        file = folder / "mlp.0.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        self.refused(4, "mlp.0.safetensors: its checksum is not the manifest's", "run", "-m", folder, "-p", "the tide")
        file.unlink()
        self.refused(3, "the manifest lists this file", "run", "-m", folder, "-p", "the tide")
        self.refused(3, "kvtide shard export", "run", "-m", self.path("nothing"), "-p", "the tide")


if __name__ == "__main__":
    unittest.main()
