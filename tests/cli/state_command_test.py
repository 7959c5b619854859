"""kvtide state: snapshots looked at, compared, resized and exported, against the reader of examples/read_snapshot.py."""

import contextlib
import importlib.util
import io
import json
import struct
import unittest
from array import array

from program import LLAMA, MODELS, TEXT, ProgramTest, kvtide

USAGE, BAD_FORMAT, IO, DIFFERENT = 2, 4, 8, 11
GEMMA = MODELS / "gemma3-window.gguf"  # 7 layers, one KV head of 8; all but the last but one see 16 positions
TOKENS, LAYERS, HEADS, HEAD_DIM = 80, 2, 4, 8  # of LLAMA
GLOBAL = 5  # of GEMMA

_spec = importlib.util.spec_from_file_location("read_snapshot", LLAMA.parents[3] / "examples" / "read_snapshot.py")
reader = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reader)


class StateTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "state.kv"

    def save(self, *words, path=None, model=LLAMA, text=TEXT):
        words = ("-f", text, "-n", 0, "--save-state", path or self.state, *words)
        self.assert_fine(kvtide("run", "-m", model, *words))

    def info(self, path=None):
        return self.assert_fine(kvtide("state", "info", path or self.state, "--json")).json

    def rows(self, path=None):
        """{(layer, "k" or "v"): (first position, [head][row][element])} as the Python reader finds them."""
        header, payload = reader.read(path or self.state)
        found = {}
        for tensor in header["tensors"]:
            if tensor["name"] == "logits":
                continue
            _, layer, part = tensor["name"].split(".")
            heads, rows, dim = tensor["shape"]
            flat = reader.numbers(tensor, payload)
            runs = found.setdefault((int(layer), part), [])
            runs.append((tensor["first"], [[flat[(h * rows + r) * dim : (h * rows + r + 1) * dim] for r in range(rows)]
                                           for h in range(heads)]))  # fmt: skip
        return found

    def assert_unchanged_by(self, outcome, status, *parts):
        before = self.state.read_bytes()
        self.assert_refused(outcome, status, *parts)
        self.assertEqual(self.state.read_bytes(), before)


class Reader(StateTest):
    def test_it_finds_what_the_program_tells(self):
        self.save("-ctv", "f32")
        header, _ = reader.read(self.state)
        info = self.info()
        for key in ("identity", "exact", "position", "tokens", "attention_size"):
            self.assertEqual(header[key], info[key])
        self.assertEqual(header["tokens"], self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-f", TEXT, "--json")).json["ids"])
        self.assertEqual([(t["dtype"], t["shape"]) for t in header["tensors"][:2]],
                         [("f16", [HEADS, TOKENS, HEAD_DIM]), ("f32", [HEADS, TOKENS, HEAD_DIM])])  # fmt: skip

    def test_the_logits_are_those_that_the_program_computes(self):
        self.save()
        header, payload = reader.read(self.state)
        out = self.folder / "logits.npy"
        self.assert_fine(kvtide("logits", "-m", LLAMA, "-f", TEXT, "--out", out))
        self.assertEqual(out.read_bytes()[-4 * 64 :], array("f", reader.numbers(header["tensors"][-1], payload)).tobytes())

    def test_it_finds_every_flipped_bit(self):
        self.save(text=self.file("short.txt", b"in"))
        whole = self.state.read_bytes()
        reader.read(self.state)
        for at in range(0, len(whole), 37):
            broken = bytearray(whole)
            broken[at] ^= 1 << at % 8
            self.state.write_bytes(broken)
            with self.assertRaises(SystemExit, msg=f"byte {at}"), contextlib.redirect_stdout(io.StringIO()):
                reader.read(self.state)


class Info(StateTest):
    def test_the_json_tells_shape_policy_and_bytes(self):
        self.save("-c", 100)
        info = self.info()
        self.assertEqual((info["position"], info["rows"], info["capacity"]), (TOKENS, TOKENS, 100))
        self.assertEqual((info["key_type"], info["value_type"], info["exact"]), ("f16", "f16", False))
        self.assertEqual(info["segments"], [[0, TOKENS, 0]])
        self.assertEqual(info["layers"], [{"kv_heads": HEADS, "head_dim": HEAD_DIM, "window": None, "rows": [[0, TOKENS]]}] * LAYERS)
        self.assertEqual(info["capacity_bytes"], 2 * LAYERS * HEADS * 100 * HEAD_DIM * 2)
        self.assertEqual(info["file_bytes"], self.state.stat().st_size)
        self.assertEqual((info["attention_size"], info["rolling"]), (None, None))
        self.assertRegex(info["logits_hash"], "^[0-9a-f]{16}$")

    def test_windows_are_told(self):
        self.save("--overflow", "rolling", "--kv-sinks", 2, "--kv-window", 30, "--attention-size", 7, model=GEMMA)
        info = self.info()
        self.assertEqual((info["rolling"], info["attention_size"], info["rows"]), ({"sinks": 2, "window": 30}, 7, 32))
        self.assertEqual([layer["window"] for layer in info["layers"]], [None if i == GLOBAL else 16 for i in range(7)])
        text = self.assert_fine(kvtide("state", "info", self.state)).text
        for part in ("2 sinks and the newest 30", "the newest 7 positions", "6 of them see the newest 16", "gemma3"):
            self.assertIn(part, text)


class Diff(StateTest):
    def setUp(self):
        super().setUp()
        self.other = self.folder / "other.kv"

    def diff(self, status):
        outcome = kvtide("state", "diff", self.state, self.other, "--json")
        self.assertEqual(outcome.status, status, outcome.err)
        return outcome.json

    def test_the_same_reading_in_other_chunks_is_the_same(self):
        self.save("--prefill-chunk", 7)
        self.save("--prefill-chunk", 80, "-t", 1, path=self.other)
        self.assertEqual(self.diff(0), {"same": True, "fields": {}, "common_tokens": TOKENS, "layers": []})
        self.assertIn("bit for bit", self.assert_fine(kvtide("state", "diff", self.state, self.other)).text)

    def test_another_ending_differs_from_there_on(self):
        words = TEXT.read_text("utf-8")
        self.save()
        self.save(path=self.other, text=self.file("other.txt", (words[:-2] + "z" + words[-1:]).encode()))
        found = self.diff(DIFFERENT)
        self.assertFalse(found["same"])
        ids = [self.info(path)["tokens"] for path in (self.state, self.other)]
        common = next(i for i, (a, b) in enumerate(zip(*ids)) if a != b)
        self.assertEqual(found["common_tokens"], common)
        self.assertEqual([layer["first_different"] for layer in found["layers"]], [common] * LAYERS)
        for layer in found["layers"]:
            self.assertGreater(layer["largest_key_difference"], 0)
            self.assertLessEqual(layer["different_rows"], TOKENS - common + 1)

    def test_other_types_and_sizes_are_fields(self):
        self.save("-c", 90)
        self.save("-c", 99, "-ctk", "f32", "--attention-size", 80, path=self.other)
        fields = self.diff(DIFFERENT)["fields"]
        self.assertEqual(fields["capacity"], ["90", "99"])
        self.assertEqual(fields["key_type"], ["f16", "f32"])
        self.assertEqual(fields["attention_size"], ["all", "80"])
        text = kvtide("state", "diff", self.state, self.other).text
        self.assertIn("key_type: f16 | f32\n", text)

    def test_other_models_have_other_shapes(self):
        self.save()
        self.save(path=self.other, model=GEMMA)
        self.assertLessEqual({"model", "architecture", "shape"}, self.diff(DIFFERENT)["fields"].keys())


class Changes(StateTest):
    def test_truncating_leaves_what_a_shorter_reading_would(self):
        letters = "a b c d e f g h i j k l m n o p q r s t u v w x y z"  # one token a letter, one a space
        ids = [self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-p", text, "--json")).json["ids"] for text in (letters, letters[:21])]
        self.assertEqual(ids[0][:len(ids[1])], ids[1])
        self.save(text=self.file("long.txt", letters.encode()))
        shorter = self.folder / "shorter.kv"
        self.save(text=self.file("short.txt", letters[:21].encode()), path=shorter)
        self.assert_fine(kvtide("state", "truncate", self.state, "--length", len(ids[1])))
        outcome = kvtide("state", "diff", self.state, shorter, "--json")
        self.assertEqual((outcome.status, list(outcome.json["fields"]), outcome.json["layers"]), (DIFFERENT, ["logits_hash"], []))
        rest = self.file("rest.txt", letters.encode())
        whole, again = (kvtide("run", "-m", LLAMA, "-f", rest, "-n", 3, "--logits-hash", *words)
                        for words in ([], ["--load-state", self.state]))  # fmt: skip
        self.assertEqual(whole.err.splitlines()[-1], self.assert_fine(again).err.splitlines()[-1])
        self.assertEqual(whole.text, again.text)

    def test_capacity_goes_down_and_up(self):
        self.save("-c", 200)
        other = self.folder / "other.kv"
        self.assert_fine(kvtide("state", "compact", self.state, "--capacity", 80, "--out", other))
        self.assertEqual((self.info()["capacity"], self.info(other)["capacity"]), (200, 80))
        self.assert_fine(kvtide("state", "expand", other, "--capacity", 200))
        self.assertIn("the same", self.assert_fine(kvtide("state", "diff", self.state, other)).text)

    def test_what_cannot_be_done_is_refused_and_changes_nothing(self):
        self.save("-c", 200)
        for words, *parts in [(["compact", self.state, "--capacity", 79], "79", "80 are in use"),
                              (["expand", self.state, "--capacity", 199], "199", "200"),
                              (["truncate", self.state, "--length", 81], "81", "80")]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_unchanged_by(kvtide("state", *words), USAGE, str(self.state), *parts)
        self.assert_unchanged_by(kvtide("state", "compact", self.state, "--capacity", 90, "--out", "/dev/full"), IO, "/dev/full")

    def test_a_window_that_moved_on_names_the_smallest_length(self):
        text = self.file("text.txt", TEXT.read_bytes() * 4)
        self.save("--overflow", "rolling", "--kv-window", 20, "--prefill-chunk", 64, text=text)
        self.assert_unchanged_by(kvtide("state", "truncate", self.state, "--length", 30), USAGE, "window has moved on", "smallest")


class Export(StateTest):
    def export(self, *words, out="x.safetensors"):
        path = self.folder / out
        self.assert_fine(kvtide("state", "export", self.state, "--out", path, *words))
        return path

    def read_safetensors(self, path):
        """{name: (dtype, shape, flat numbers)} and the metadata"""
        content = path.read_bytes()
        (length,) = struct.unpack_from("<Q", content)
        self.assertEqual(length % 8, 0)
        header = json.loads(content[8 : 8 + length])
        metadata, arrays, end = header.pop("__metadata__"), {}, 0
        for name, item in header.items():
            first, last = item["data_offsets"]
            self.assertEqual(first, end)
            end = last
            code = {"F16": "e", "F32": "f", "I32": "i"}[item["dtype"]]
            data = content[8 + length + first : 8 + length + last]
            arrays[name] = item["dtype"], item["shape"], struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
        self.assertEqual(8 + length + end, len(content))
        return arrays, metadata

    def flat(self, blocks, first, capacity, rows):
        """The rows from position `first` on of (layer, part) after (layer, part), each padded to `capacity` with zeros."""
        numbers = []
        for block in blocks:
            start, heads = rows[block][-1]
            for head in heads:
                kept = head[first - start :]
                numbers += [x for row in kept for x in row] + [0.0] * ((capacity - len(kept)) * len(head[0]))
        return tuple(numbers)

    def test_unified_is_all_keys_then_all_values(self):
        self.save()
        arrays, metadata = self.read_safetensors(self.export("--capacity", 96))
        dtype, shape, numbers = arrays["kv_cache"]
        self.assertEqual((list(arrays), dtype, shape), (["kv_cache"], "F16", [2 * LAYERS, HEADS, 96, HEAD_DIM]))
        blocks = [(0, "k"), (1, "k"), (0, "v"), (1, "v")]
        self.assertEqual(numbers, self.flat(blocks, 0, 96, self.rows()))
        self.assertEqual((metadata["layout"], metadata["position"], metadata["first_position.kv_cache"]), ("unified", "80", "0"))
        self.assertEqual(metadata["identity.model"], self.info()["identity"]["model"])
        self.assertEqual(json.loads(metadata["tokens"]), self.info()["tokens"])

    def test_per_layer_is_two_arrays_a_layer(self):
        self.save("-ctv", "f32")
        arrays, _ = self.read_safetensors(self.export("--layout", "per-layer"))
        rows = self.rows()
        self.assertEqual(len(arrays), 2 * LAYERS)
        for (layer, part) in rows:
            dtype, shape, numbers = arrays[f"layers.{layer}.{part}_state"]
            self.assertEqual((dtype, shape), ("F16" if part == "k" else "F32", [1, HEADS, TOKENS, HEAD_DIM]))
            self.assertEqual(numbers, self.flat([(layer, part)], 0, TOKENS, rows))

    def test_stacked_has_a_counter(self):
        self.save()
        arrays, _ = self.read_safetensors(self.export("--layout", "stacked"))
        self.assertEqual(arrays["pastLen"], ("I32", [1], (TOKENS,)))
        for name, part in (("keyCache", "k"), ("valueCache", "v")):
            self.assertEqual(arrays[name][:2], ("F16", [LAYERS, 1, HEADS, TOKENS, HEAD_DIM]))
            self.assertEqual(arrays[name][2], self.flat([(0, part), (1, part)], 0, TOKENS, self.rows()))

    def test_split_keeps_windows_apart(self):
        self.save(model=GEMMA)
        arrays, metadata = self.read_safetensors(self.export("--layout", "split"))
        local = [i for i in range(7) if i != GLOBAL]
        self.assertEqual(arrays["kv_cache_local"][1], [12, 1, 16, 8])
        self.assertEqual(arrays["kv_cache_global"][1], [2, 1, TOKENS, 8])
        self.assertEqual((metadata["first_position.kv_cache_local"], metadata["first_position.kv_cache_global"]), ("64", "0"))
        rows = self.rows()
        blocks = [(layer, part) for part in "kv" for layer in local]
        self.assertEqual(arrays["kv_cache_local"][2], self.flat(blocks, 64, 16, rows))
        self.assertEqual(arrays["kv_cache_global"][2], self.flat([(GLOBAL, "k"), (GLOBAL, "v")], 0, TOKENS, rows))

    def test_a_folder_gets_numpy_files_with_the_same_elements(self):
        self.save()
        content = self.export().read_bytes()
        folder = self.export(out="arrays")
        self.assertEqual([path.name for path in folder.iterdir()], ["kv_cache.npy"])
        npy = (folder / "kv_cache.npy").read_bytes()
        self.assertEqual(npy[:8], b"\x93NUMPY\1\0")
        (length,) = struct.unpack_from("<H", npy, 8)
        header = eval(npy[10 : 10 + length].decode("ascii"), {})  # a dict literal, as the format defines it
        self.assertEqual(header, {"descr": "<f2", "fortran_order": False, "shape": (4, HEADS, TOKENS, HEAD_DIM)})
        self.assertEqual(npy[10 + length :], content[-len(npy) + 10 + length :])
        stacked = self.export("--layout", "stacked", "--dtype", "f32", out="stacked")
        self.assertEqual(sorted(path.name for path in stacked.iterdir()), ["keyCache.npy", "pastLen.npy", "valueCache.npy"])
        self.assertIn(b"'<f4'", (stacked / "keyCache.npy").read_bytes()[:64])

    def test_a_window_that_moved_on_is_refused_or_cut(self):
        self.save("--overflow", "rolling", "--kv-sinks", 2, "--kv-window", 20)
        out = self.folder / "x.safetensors"
        outcome = kvtide("state", "export", self.state, "--out", out)
        self.assert_refused(outcome, USAGE, str(self.state), "rolling window", "--exact-only")
        self.assertFalse(out.exists())
        outcome = self.assert_fine(kvtide("state", "export", self.state, "--out", out, "--exact-only"))
        self.assertIn("left out: positions 0 to 60", outcome.err)
        arrays, metadata = self.read_safetensors(out)
        self.assertEqual((arrays["kv_cache"][1], metadata["first_position.kv_cache"]), ([4, HEADS, 20, HEAD_DIM], "60"))
        blocks = [(0, "k"), (1, "k"), (0, "v"), (1, "v")]
        self.assertEqual(arrays["kv_cache"][2], self.flat(blocks, 60, 20, self.rows()))

    def test_a_name_that_is_neither_kind_is_refused(self):
        self.save()
        out = self.folder / "x.bin"
        self.assert_refused(kvtide("state", "export", self.state, "--out", out), USAGE, str(out), "x.safetensors", "x.bin/")
        self.assertFalse(out.exists())
        self.assert_fine(kvtide("state", "export", self.state, "--out", f"{out}/"))
        self.assertTrue((out / "kv_cache.npy").is_file())
        self.assert_fine(kvtide("state", "export", self.state, "--out", out))  # a folder that is there
        self.assertTrue((self.export(out="arrays-1.5") / "kv_cache.npy").is_file())

    def test_a_rolling_memory_that_never_moved_is_exported_as_it_is(self):
        self.save("--overflow", "rolling", "--kv-window", 90)
        self.assertEqual(self.read_safetensors(self.export())[0]["kv_cache"][1], [4, HEADS, TOKENS, HEAD_DIM])

    def test_arrays_too_small_for_the_rows_are_refused(self):
        self.save()
        outcome = kvtide("state", "export", self.state, "--out", self.folder / "x.safetensors", "--capacity", 79)
        self.assert_refused(outcome, USAGE, "80 rows", "79")


class Import(StateTest):
    def setUp(self):
        super().setUp()
        self.arrays, self.back = self.folder / "x.safetensors", self.folder / "back.kv"

    def build(self, arrays, metadata=None):
        """A safetensors file of {name: (dtype, shape, bytes)}."""
        header, data = {"__metadata__": metadata} if metadata else {}, b""
        for name, (dtype, shape, content) in arrays.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        text = json.dumps(header).encode()
        self.arrays.write_bytes(struct.pack("<Q", len(text)) + text + data)

    def importing(self, *words):
        return kvtide("state", "import", self.arrays, "--like", self.state, "--out", self.back, *words)

    def test_what_was_exported_comes_back_bit_for_bit(self):
        for model, layout, words in [(LLAMA, "unified", []), (LLAMA, "per-layer", ["-ctk", "f32"]), (LLAMA, "stacked", ["-ctv", "f32"]),
                                     (GEMMA, "split", []), (GEMMA, "unified", ["-ctk", "f32", "-ctv", "f32"])]:  # fmt: skip
            with self.subTest(model=model.name, layout=layout):
                self.save(*words, model=model)
                self.assert_fine(kvtide("state", "export", self.state, "--out", self.arrays, "--layout", layout, "--capacity", 90))
                self.assert_fine(self.importing())
                found = kvtide("state", "diff", self.state, self.back, "--json").json
                self.assertEqual((list(found["fields"]), found["common_tokens"]), (["logits_hash"], TOKENS))
                self.assertEqual([layer for layer in found["layers"] if layer["different_rows"] or layer["only_second"]], [])
                after = [kvtide("run", "-m", model, "--load-state", path, "-p", "in", "-n", 5, "--logits-hash")
                         for path in (self.state, self.back)]  # fmt: skip
                self.assertEqual(self.assert_fine(after[0]).text, self.assert_fine(after[1]).text)
                self.assertEqual(after[0].err.splitlines()[-1], after[1].err.splitlines()[-1])

    def test_rows_of_another_program_need_their_tokens(self):
        self.save()
        rows = struct.pack("<64e", *(i / 8 for i in range(64)))  # 2 rows of 8 for 4 heads
        self.build({"kv_cache": ("F16", [4, HEADS, 2, HEAD_DIM], rows * 4)})
        self.assert_refused(self.importing(), USAGE, str(self.arrays), "--tokens")
        ids = self.file("ids.txt", b"[7,\n 40]")
        self.assert_fine(self.importing("--tokens", ids))
        self.assertEqual((self.info(self.back)["tokens"], self.info(self.back)["position"]), ([7, 40], 2))
        first, heads = self.rows(self.back)[1, "v"][0]
        self.assertEqual((first, heads[3][1]), (0, [i / 8 for i in range(56, 64)]))
        self.assert_refused(self.importing("--tokens", self.file("ids.txt", b"7 x")), BAD_FORMAT, "ids.txt", "'x'")

    def test_arrays_that_do_not_fit_are_named(self):
        self.save()
        one = struct.pack("<32e", *range(32)) * 4
        tokens = {"tokens": "[7]"}
        good = {"kv_cache": ("F16", [4, HEADS, 1, HEAD_DIM], one)}
        self.build(good, tokens)
        self.assert_fine(self.importing())
        for arrays, metadata, *parts in [
            (good, {"tokens": "[7, 8]"}, "[4, 4, 1, 8]", "at least 2"),
            (good, {"tokens": "[]"}, "no tokens"),
            (good, tokens | {"first_position.kv_cache": "3"}, "position 3"),
            ({"kv_cache": ("F16", [4, 2, 2, HEAD_DIM], one)}, tokens, "[4, 2, 2, 8]"),
            ({"kv_cache": ("I16", [4, HEADS, 1, HEAD_DIM], one)}, tokens, "I16"),
            ({"kv_cache": ("F16", [4, HEADS, 1, HEAD_DIM], one[:-2] + b"\x00\x7c")}, tokens, "NaN or infinity", "layer 1"),
            ({"kv_cache": ("F16", [4, HEADS, 2, HEAD_DIM], one)}, tokens, "bytes"),
            ({"keyCache": ("F16", [2, 1, HEADS, 1, HEAD_DIM], one[: len(one) // 2])}, tokens, "valueCache"),
            ({"other": ("F16", [1], b"12")}, tokens, "known layout"),
        ]:  # fmt: skip
            with self.subTest(parts=parts):
                self.build(arrays, metadata)
                self.assert_refused(self.importing(), BAD_FORMAT, str(self.arrays), *parts)
        self.arrays.write_bytes(b"\xff" * 9)
        self.assert_refused(self.importing(), BAD_FORMAT, str(self.arrays), "header")

    def test_a_rolling_memory_is_no_model_for_arrays(self):
        self.save()
        self.assert_fine(kvtide("state", "export", self.state, "--out", self.arrays))
        self.save("--overflow", "rolling")
        self.assert_refused(self.importing(), USAGE, "--like", "rolling")


class BadInput(StateTest):
    def test_words_that_are_missing_or_too_many_are_named(self):
        self.save()
        for words, *parts in [([], "info, diff"), (["inf", self.state], "'inf'", "did you mean info?"), (["info"], "FILE is missing"),
                              (["diff", self.state], "two files"), (["info", self.state, "more"], "'more'"),
                              (["truncate", self.state], "--length is missing"), (["compact", self.state], "--capacity is missing"),
                              (["export", self.state], "--out is missing"), (["import", self.state, "--out", "x"], "--like is missing"), (["info", self.state, "--length", 3], "takes no --length"),
                              (["expand", self.state, "--capacity", 300, "--json"], "takes no --json"),
                              (["export", self.state, "--out", "x", "--layout", "flat"], "'flat'", "unified"),
                              (["export", self.state, "--out", "x", "--dtype", "f8"], "'f8'", "f32"),
                              (["truncate", self.state, "--length", -1], "--length", "0 to")]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(kvtide("state", *words), USAGE, *parts)

    def test_files_that_are_no_snapshots_are_named(self):
        for action, words in [("info", []), ("truncate", ["--length", 1]), ("export", ["--out", self.folder / "x.safetensors"])]:
            self.assert_refused(kvtide("state", action, LLAMA, *words), BAD_FORMAT, str(LLAMA), "snapshot")
            self.assert_refused(kvtide("state", action, self.folder / "absent.kv", *words), 3, "absent.kv")
            self.assert_refused(kvtide("state", action, self.folder, *words), BAD_FORMAT, str(self.folder))


if __name__ == "__main__":
    unittest.main()
