"""A folder in the layout of Hugging Face, wherever a GGUF file may stand."""

import json
import pathlib
import shutil
import tempfile
import unittest

from program import MODELS, ProgramTest, kvtide

GOLDENS = MODELS.parent
FOLDER = str(GOLDENS / "folders" / "mistral-f16-shards")
ZAYA = str(GOLDENS / "folders" / "zaya-i8")
LFM2 = str(GOLDENS / "folders" / "lfm2-f32")
GPT2 = GOLDENS / "folders" / "gpt2-f32"
TEXT = str(GOLDENS / "models" / "tiny.txt")


class FolderTest(ProgramTest):
    def test_run_continues_a_text(self):
        done = self.assert_fine(kvtide("run", "-m", FOLDER, "-p", "the tide", "-n", "5"))
        self.assertIn("'mistral-f16-shards': llama", done.err)
        self.assertIn("wrote 5 tokens", done.err)

    def test_ppl_bench_tokenize_and_logits_take_it(self):
        self.assert_fine(kvtide("ppl", "-m", FOLDER, "-f", TEXT, "-c", "32"))
        self.assert_fine(kvtide("bench", "-m", FOLDER, "-p", "16", "-n", "4", "-r", "1"))
        ids = self.assert_fine(kvtide("tokenize", "-m", FOLDER, "-f", TEXT, "--json")).json["ids"]
        self.assertEqual(len(ids), 80)

    def test_inspect_lists_its_files_tensors_and_memory(self):
        answer = self.assert_fine(kvtide("inspect", FOLDER, "--json")).json
        self.assertEqual(answer["format"], "folder")
        self.assertEqual(answer["architecture"], "mistral")
        self.assertEqual(len(answer["files"]), 3)
        self.assertEqual(answer["metadata"]["sliding_window"], 16)
        names = [tensor["name"] for tensor in answer["tensors"]]
        self.assertIn("model.layers.1.mlp.down_proj.weight", names)
        self.assertEqual(answer["kv_bytes_per_token"]["f16"], 2 * 2 * 2 * 8 * 2)
        self.assertIn("KV memory for so many tokens", self.assert_fine(kvtide("inspect", FOLDER)).text)

    def test_inspect_tells_what_layers_carry_beside_rows(self):
        answer = self.assert_fine(kvtide("inspect", LFM2, "--json")).json
        self.assertEqual(answer["kv_bytes_per_token"]["f16"], 2 * 2 * 8 * 2)  # one of three layers has attention
        self.assertEqual(answer["carried_bytes"], 2 * 32 * 2 * 4)
        self.assertIn("carried from token to token", self.assert_fine(kvtide("inspect", LFM2)).text)
        self.assert_fine(kvtide("validate", "-m", LFM2))

    def test_a_snapshot_of_a_folder_belongs_to_its_files(self):
        with tempfile.TemporaryDirectory() as scratch:
            snapshot = str(pathlib.Path(scratch) / "state.kv")
            self.assert_fine(kvtide("run", "-m", FOLDER, "-p", "the tide", "-n", "2", "--save-state", snapshot))
            self.assert_fine(kvtide("run", "-m", FOLDER, "-p", " in", "-n", "2", "--load-state", snapshot))
            other = kvtide("run", "-m", str(GOLDENS / "folders" / "llama-f32"), "-n", "2", "--load-state", snapshot, "-p", "a")
            self.assertNotEqual(other.status, 0)

    def test_what_config_json_says_of_special_tokens_is_overruled_aloud(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch) / "model"
            shutil.copytree(GPT2, folder)
            config = json.loads((folder / "config.json").read_text("utf-8"))
            (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 3}), "utf-8")
            done = self.assert_fine(kvtide("run", "-m", str(folder), "-p", "the tide", "-n", "2"))
            self.assertIn("note: config.json says that 'eos_token_id' is 3, the tokenizer says 2", done.err)

    def test_positions_that_were_not_learned_are_refused(self):
        done = kvtide("run", "-m", str(GPT2), "-p", "the tide", "-n", "2", "-c", "300")
        self.assertNotEqual(done.status, 0)
        self.assertIn("it has learned 256 positions", done.err)
        done = kvtide("run", "-m", str(GPT2), "-p", "the tide", "-n", "2", "--overflow", "rolling", "--kv-window", "64")
        self.assertNotEqual(done.status, 0)
        self.assertIn("absolute positions cannot follow", done.err)

    def test_what_layers_carry_beside_rows_is_in_the_snapshot_and_goes_on_with_the_same_tokens(self):
        whole = self.assert_fine(kvtide("run", "-m", ZAYA, "-p", "the tide", "-n", "12", "--temp", "0"))
        with tempfile.TemporaryDirectory() as scratch:
            snapshot = str(pathlib.Path(scratch) / "state.kv")
            first = self.assert_fine(
                kvtide("run", "-m", ZAYA, "-p", "the tide", "-n", "5", "--temp", "0", "--save-state", snapshot))
            carried = self.assert_fine(kvtide("state", "info", snapshot, "--json")).json["carried"]
            self.assertEqual(carried[0], {"name": "layers.0.conv_state", "dtype": "f32", "shape": [40, 2]})
            self.assertEqual([item["shape"] for item in carried[1::2]], [[4], [4]])
            self.assertIn("4 tensors beside rows", self.assert_fine(kvtide("state", "info", snapshot)).text)
            rest = self.assert_fine(kvtide("run", "-m", ZAYA, "-n", "7", "--temp", "0", "--load-state", snapshot))
        self.assertEqual(first.out + rest.out, whole.out)

    def test_an_empty_folder_is_told_what_it_needs(self):
        with tempfile.TemporaryDirectory() as scratch:
            done = kvtide("run", "-m", scratch, "-p", "a")
            self.assertNotEqual(done.status, 0)
            self.assertIn("a folder needs config.json, tokenizer.json and weights as safetensors", done.err)


if __name__ == "__main__":
    unittest.main()
