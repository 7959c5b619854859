"""kvtide coreml: what a Core ML model holds, as text, JSON and MIL."""

import json
import unittest
from pathlib import Path

from program import ProgramTest, kvtide

MIL = """program(1.3)
[buildInfo = dict<string, string>({{"coremltools-version", "9.0"}})]
{
    func main<ios18>(tensor<int32, [1, ?]> ids, state<tensor<fp16, [1, 4, 8]>> cache) [FlexibleShapeInformation = tuple<tuple<string, dict<string, tensor<int32, [?]>>>, tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>>((("DefaultShapes", {{"ids", [1, 1]}}), ("RangeDims", {{"ids", [[1, 1], [1, 4]]}})))] {
        tensor<fp16, [1, 4, 8]> old = read_state(input = cache)[name = string("old")];
        tensor<fp16, [1, 4, 8]> new = add(x = old, y = fp16(0x1p+0))[name = string("new")];
        write_state(data = new, input = cache)[name = string("w")];
    } -> (new);
}
"""


class Inspect(ProgramTest):
    def setUp(self):
        super().setUp()
        self.mil = self.file("model.mil", MIL.encode())

    def test_text_says_what_goes_in_stays_and_comes_out(self):
        text = self.assert_fine(kvtide("coreml", "inspect", self.mil)).text
        self.assertRegex(text, r"(?m)^    ids +int32  \[1, 1\.\.4\]$")
        self.assertRegex(text, r"(?m)^  States: 64 B\n    cache +fp16   \[1, 4, 8\]  64 B$")
        self.assertRegex(text, r"(?m)^    write_state +1$")

    def test_json_says_the_same(self):
        found = self.assert_fine(kvtide("coreml", "inspect", self.mil, "--json")).json
        function = found["functions"][0]
        self.assertEqual(found["specification"], 9)
        self.assertEqual(function["inputs"], [{"name": "ids", "type": "int32", "shape": [1, 1], "ranges": [[1, 1], [1, 4]]}])
        self.assertEqual(function["state_bytes"], 64)
        self.assertEqual(function["operations"], {"add": 1, "read_state": 1, "write_state": 1})
        self.assertEqual(found["build_info"], {"coremltools-version": "9.0"})

    def test_mil_prints_the_program_as_it_was(self):
        self.assertEqual(self.assert_fine(kvtide("coreml", "inspect", self.mil, "--mil")).text, MIL)

    def test_what_is_wrong_is_said_in_a_line(self):
        bad = self.file("bad.mil", MIL.replace("x = old", "x = who").encode())
        self.assert_refused(kvtide("coreml", "inspect", bad), 4, "line 6: input [x]: uses 'who'")
        self.assert_refused(kvtide("coreml", "inspect", "/none"), 3, "there is no such file or folder")
        self.assert_refused(kvtide("coreml"), 2, "say what to do")
        self.assert_refused(kvtide("coreml", "bake", self.mil), 2, "there is no action 'bake'")
        self.assert_refused(kvtide("coreml", "inspect"), 2, "PACKAGE is missing")
        self.assert_refused(kvtide("coreml", "inspect", self.mil, "--mil", "--json"), 2, "use one of them")


class Lint(ProgramTest):
    def lint(self, mil, *words):
        return kvtide("coreml", "lint", self.file("model.mil", mil.encode()), *words)

    def test_warnings_and_hints_are_said_and_are_no_failure(self):
        outcome = self.assert_fine(self.lint(MIL))
        self.assertRegex(outcome.text, r"(?m)^warning: input-unused \(main\): the input 'ids' reaches no output")
        self.assertRegex(outcome.text, r"(?m)^hint: state-shape \(main\): axis 1 of the state 'cache'")
        found = self.assert_fine(self.lint(MIL, "--json")).json
        self.assertEqual((found["errors"], [one["rule"] for one in found["findings"]]), (0, ["input-unused", "state-shape"]))

    def test_a_state_that_is_never_written_is_an_error_with_its_place(self):
        mil = "\n".join(line for line in MIL.split("\n") if "write_state" not in line)
        outcome = self.lint(mil)
        self.assertEqual(outcome.status, 12)
        self.assertRegex(outcome.text, r"(?m)^error: index-put-lost \(main, line 5, old\): the state 'cache' is read and never written")
        found = self.lint(mil, "--json")
        self.assertEqual((found.status, found.json["errors"]), (12, 1))

    def test_flags_of_other_actions_are_refused(self):
        for words, says in ((["lint", "a.mil", "--mil"], "--mil"), (["inspect", "a.mil", "--tokenizer", "x"], "--tokenizer")):
            self.assert_refused(kvtide("coreml", *words), 2, says)


def successor(vocabulary, mask="attention_mask"):
    """A model whose next token is always the id behind the last one: ids, a mask, a cache, a counter."""
    row = lambda i: "[" + ", ".join("0x1p+0" if j == (i + 1) % vocabulary else "0x0p+0" for j in range(vocabulary)) + "]"
    table = ", ".join(row(i) for i in range(vocabulary))
    return f"""program(1.3)
{{
    func main<ios18>(tensor<int32, [1, ?]> {mask}, tensor<int32, [1, ?]> input_ids, state<tensor<fp16, [1, 1, 1, 16, 4]>> keyCache, state<tensor<fp16, [1]>> pastLen) {{
        tensor<fp16, [1]> old = read_state(input = pastLen)[name = string("old")];
        tensor<fp16, [1]> new = add(x = old, y = fp16(0x1p+0))[name = string("new")];
        write_state(data = new, input = pastLen)[name = string("w")];
        tensor<fp16, [1, ?, {vocabulary}]> logits = gather(x = tensor<fp16, [{vocabulary}, {vocabulary}]>([{table}]), indices = input_ids, axis = int32(0))[name = string("logits")];
    }} -> (logits);
}}
"""


class Run(ProgramTest):
    def setUp(self):
        super().setUp()
        self.mil = self.file("model.mil", successor(8).encode())

    def test_ids_go_in_and_come_out(self):
        outcome = self.assert_fine(kvtide("coreml", "run", self.mil, "--ids", "1,2,3", "-n", "4"))
        self.assertEqual(outcome.text, "4,5,6,7\n")
        self.assertRegex(outcome.err, r"read 3 tokens in 1 calls, .* tok/s; wrote 4, .* states 130 B of 16 tokens, 0 B copied")
        self.assertRegex(outcome.err, r"model\.mil: .* ms a token")

    def test_the_mask_is_known_by_its_name_and_not_by_its_place(self):
        for mask in ("attentionMask", "attention_mask", "mask"):
            mil = self.file("named.mil", successor(8, mask).encode())
            self.assertEqual(self.assert_fine(kvtide("coreml", "run", mil, "--ids", "5", "-n", "2")).text, "6,7\n")
        mil = self.file("named.mil", successor(8, "length").encode())
        self.assert_refused(kvtide("coreml", "run", mil, "--ids", "5"), 5, "its inputs are not ids and a mask")

    def test_json_has_the_figures(self):
        words = ["coreml", "run", self.mil, "--ids", "1,2,3", "-n", "2", "--chunk", "2", "--json"]
        found = self.assert_fine(kvtide(*words)).json
        self.assertEqual((found["tokens"], found["stop_reason"]), ([4, 5], "max_tokens"))
        self.assertEqual((found["prompt_calls"], found["decode_calls"], found["state_bytes"]), (2, 1, 130))
        self.assertEqual([(part["package"], part["calls"]) for part in found["decode_parts"]], [("model.mil", 1)])

    def test_a_full_state_ends_the_text(self):
        outcome = kvtide("coreml", "run", self.mil, "--ids", "1,2,3", "-n", "100", "--json")
        self.assertEqual((outcome.status, outcome.json["stop_reason"]), (7, "context_full"))
        self.assertEqual(len(outcome.json["tokens"]), 14)

    def test_text_goes_in_and_comes_out(self):
        folder = Path(__file__).parent.parent / "goldens" / "folders" / "llama-f32"
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        mil = self.file("text.mil", successor(vocabulary).encode())
        words = ["coreml", "run", mil, "--tokenizer", str(folder), "-p", "the", "-n", "3"]
        found = self.assert_fine(kvtide(*words, "--json")).json
        first = found["tokens"][0]
        self.assertEqual(found["tokens"], [first, first + 1, first + 2])
        self.assertEqual(self.assert_fine(kvtide(*words)).text, found["text"] + "\n")

    def test_what_is_missing_or_too_much_is_said(self):
        cache = self.file("cache.mil", MIL.encode())
        self.assert_refused(kvtide("coreml", "run", cache, "--ids", "1"), 5, "function main has inputs ids int32")
        self.assert_refused(kvtide("coreml", "run", self.mil), 2, "either --tokenizer FOLDER and a text")
        self.assert_refused(kvtide("coreml", "run", self.mil, "--ids", "1", "-p", "a"), 2, "a text needs --tokenizer")
        self.assert_refused(kvtide("coreml", "inspect", self.mil, "--ids", "1"), 2, "kvtide coreml run takes them")


class Export(ProgramTest):
    MODEL = str(Path(__file__).parent.parent / "goldens" / "folders" / "llama-f32")

    def export(self, name, *words):
        path = str(self.folder / name)
        return path, kvtide("coreml", "export", "-m", self.MODEL, "-o", path, "--slots", "48", *words)

    def test_packages_say_what_the_model_says(self):
        words = ["-p", "the sea is", "-n", "12"]
        wanted = self.assert_fine(kvtide("run", "-m", self.MODEL, "--exact", *words)).text
        for name, how in (("one.mlpackage", []), ("layers", ["--per-layer", "--tokens", "1,4"])):
            path, outcome = self.export(name, *how)
            self.assert_fine(outcome)
            found = self.assert_fine(kvtide("coreml", "run", path, "--tokenizer", self.MODEL, *words, "--json")).json
            self.assertEqual((found["text"], found["slots"], found["state_bytes_copied"]), (wanted.rstrip("\n"), 48, 0))

    def test_json_has_the_figures(self):
        path, outcome = self.export("parts", "--chunks", "2", "--int8", "channel", "--json")
        found = self.assert_fine(outcome).json
        self.assertEqual((found["path"], found["packages"]), (path, 4))
        self.assertGreater(found["bytes"], 10000)

    def test_a_text_goes_on_from_a_session_to_a_package_and_back(self):
        (small, _), (large, _) = self.export("small.mlpackage"), self.export("large", "--chunks", "1", "--slots", "64")
        at = lambda name: str(self.folder / name)
        run = lambda *words: self.assert_fine(kvtide(*words)).text
        whole = run("run", "-m", self.MODEL, "--exact", "-p", "the sea is", "-n", "12")
        # A session reads, a package goes on; a package with more slots goes on from there; a session from that.
        first = run("run", "-m", self.MODEL, "--exact", "-p", "the sea is", "-n", "3", "--save-state", at("a.kv"))
        run("state", "export", at("a.kv"), "--layout", "per-layer", "--out", at("a.safetensors"))
        words = ["--tokenizer", self.MODEL, "-n", "3"]
        second = run("coreml", "run", small, *words, "--load-state", at("a.safetensors"), "--save-state", at("b.safetensors"))
        third = run("coreml", "run", large, *words, "--load-state", at("b.safetensors"), "--save-state", at("c.safetensors"))
        run("state", "import", at("c.safetensors"), "--like", at("a.kv"), "--out", at("c.kv"))
        text = first + "".join(part.removesuffix("\n") for part in (second, third))
        self.assertTrue(whole.startswith(text))
        word = whole[len(text) :][:2]  # " t": a snapshot has no logits, so a token is read first
        fourth = run("run", "-m", self.MODEL, "--exact", "--load-state", at("c.kv"), "-p", word, "-n", "2")
        self.assertEqual(text + word + fourth, whole)
        other = str(Path(self.MODEL).parent / "qwen2-bf16")
        self.assert_fine(kvtide("coreml", "export", "-m", other, "-o", at("other.mlpackage")))
        refused = kvtide("coreml", "run", at("other.mlpackage"), *words, "--load-state", at("a.safetensors"))
        self.assert_refused(refused, 2, "holds rows of another model")
        junk = self.file("junk.safetensors", b"x")
        self.assertEqual(kvtide("coreml", "run", small, *words, "--load-state", junk).status, 4)

    def test_lint_runs_what_was_exported_and_bench_measures_it(self):
        path, _ = self.export("layers", "--per-layer")
        found = self.assert_fine(kvtide("coreml", "lint", path, "--run", "--json")).json
        self.assertEqual({each["severity"] for each in found["findings"]}, {"hint"})
        self.assertTrue(found["findings"][0]["function"].startswith("layers_"))
        found = self.assert_fine(kvtide("coreml", "bench", path, "--read", "9", "-n", "3", "--json")).json
        self.assertEqual((found["prompt_tokens"], found["prompt_calls"], found["decode_tokens"]), (9, 3, 3))
        self.assertEqual(len(found["parts"]), 4)
        self.assertRegex(self.assert_fine(kvtide("coreml", "bench", path, "-n", "2")).text, r"^reads .* tok/s \(46 tokens in 12 calls\)")

    def test_what_is_missing_or_too_much_is_said(self):
        path, outcome = self.export("m.mlpackage", "--tokens", "2..4")
        self.assert_refused(outcome, 2, "they begin with 1")
        self.assertFalse(Path(path).exists())
        self.assert_refused(self.export("m", "--chunks", "1", "--per-layer")[1], 2, "use one of them")
        self.assert_refused(self.export("m", "--int8", "channel", "--int4", "32")[1], 2, "may be given once")
        self.assert_refused(self.export("m", "--int4", "16")[1], 2, "the size of a block")
        self.assert_refused(self.export("m", "--int8", "row")[1], 2, "tensor")
        self.assert_refused(kvtide("coreml", "export", "-o", path), 2, "-m MODEL is missing")
        self.assert_refused(kvtide("coreml", "export", "-m", self.MODEL), 2, "-o PATH is missing")
        self.assert_refused(kvtide("coreml", "run", path, "--slots", "8"), 2, "kvtide coreml export takes them")
        self.assert_refused(kvtide("coreml", "inspect", path, "--run"), 2, "kvtide coreml lint takes it")
        self.assert_refused(kvtide("coreml", "run", path, "--ids", "1", "--read", "8"), 2, "kvtide coreml bench takes it")


if __name__ == "__main__":
    unittest.main()
