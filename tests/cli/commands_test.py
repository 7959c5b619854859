"""What the commands answer: keys of the JSON, files, and numbers that goldens or other commands know too."""

import json
import math
import struct
import subprocess
import unittest
import xml.etree.ElementTree
from array import array

from program import LLAMA, MODELS, PROGRAM, TEXT, TIMEOUT_S, ProgramTest, environment, kvtide

VOCABULARY, PROMPT_TOKENS = 64, 80
GEMMA = MODELS / "gemma3-window.gguf"
EXACT = ("--exact", "-ctk", "f32", "-ctv", "f32")


def read_npy(path):
    """shape, float32 values"""
    content = path.read_bytes()
    magic, length = content[:8], struct.unpack("<H", content[8:10])[0]
    if magic != b"\x93NUMPY\x01\0" or (10 + length) % 64 != 0:
        raise ValueError("not a NumPy file of version 1.0")
    header = eval(content[10 : 10 + length].decode("ascii"), {})  # a dict literal, as the format defines it
    if header["descr"] != "<f4" or header["fortran_order"]:
        raise ValueError(f"not float32 in C order: {header}")
    return header["shape"], array("f", content[10 + length :])


def best(row) -> int:
    return max(range(len(row)), key=lambda i: row[i])


class Run(ProgramTest):
    def report(self, *words, prompt=("-f", TEXT)):
        path = self.folder / "report.json"
        outcome = self.assert_fine(kvtide("run", "-m", LLAMA, *prompt, "--report", path, *words))
        return outcome, json.loads(path.read_text("utf-8"))

    def test_the_report_holds_the_promised_keys_and_counts(self):
        outcome, report = self.report("-n", 12)
        self.assertLessEqual(
            {"prefill_tokens", "prefill_tok_s", "decode_tokens", "decode_tok_s", "ttft_ms", "context_tokens",
             "weights_bytes", "kv_bytes", "scratch_bytes", "rss_bytes", "rss_anon_bytes", "logits_hash", "tokens",
             "text", "events"}, report.keys())  # fmt: skip
        self.assertEqual(report["prefill_tokens"], PROMPT_TOKENS)
        self.assertEqual(report["decode_tokens"], len(report["tokens"]))
        self.assertEqual(report["context_tokens"], PROMPT_TOKENS + report["decode_tokens"])
        self.assertEqual(report["text"], outcome.text)
        self.assertEqual(report["events"], [])
        self.assertGreater(report["rss_bytes"], report["rss_anon_bytes"])
        self.assertGreater(report["rss_anon_bytes"], 0)
        # Two layers of 4 heads of 8: keys and values of 92 tokens need 23,552 bytes in f16, in whole pages per head.
        self.assertGreaterEqual(report["kv_bytes"], 256 * report["context_tokens"])
        self.assertEqual(report["kv_bytes"] % 4096, 0)

    def test_greedy_tokens_are_the_best_of_the_golden_logits(self):
        shape, golden = read_npy(LLAMA.with_name("llama-mha-untied.logits.npy"))
        self.assertEqual(shape, (PROMPT_TOKENS, VOCABULARY))
        _, report = self.report("-n", 1, *EXACT)
        self.assertEqual(report["tokens"], [best(golden[-VOCABULARY:])])

    def test_the_tokens_go_to_stdout_and_the_figures_to_stderr(self):
        outcome, report = self.report("-n", 5, "-v")
        self.assertEqual(outcome.text, report["text"])
        for word in ("read", "80 tokens", "wrote", "KV", "RSS", "events", "stopped  max_tokens"):
            self.assertIn(word, outcome.err)

    def test_three_plain_lines_close_a_run(self):
        outcome, _ = self.report("-n", 5)
        lines = outcome.err.splitlines()[-3:]
        self.assertRegex(lines[0], r"^read 80 tokens in [\d.]+ m?s, [\d.]+ tok/s$")
        self.assertRegex(lines[1], r"^wrote 5 tokens in [\d.]+ m?s, [\d.]+ tok/s; as many as were asked for \(-n\)$")
        self.assertRegex(lines[2], r"^holds 85 tokens in [\d.]+ .iB of KV memory, with room for 256$")
        rolling, _ = self.report("-n", 5, "--overflow", "rolling", "--kv-window", 20)
        self.assertRegex(rolling.err.splitlines()[-1], r"^holds 24 of the 85 tokens that were read in .* \(a full f16 cache would take 21.2 KiB\)$")

    def test_text_and_figures_share_a_file_without_sharing_a_line(self):
        path = self.folder / "all.txt"
        with path.open("wb") as file:
            subprocess.run([PROGRAM, "run", "-m", LLAMA, "-f", TEXT, "-n", "5"], stdin=subprocess.DEVNULL, stdout=file,
                           stderr=file, env=environment(), check=True, timeout=TIMEOUT_S)  # fmt: skip
        self.assertRegex(path.read_text("utf-8"), r"(?m)^read 80 tokens")

    def test_reading_only_writes_nothing(self):
        outcome, report = self.report("-n", 0)
        self.assertEqual((outcome.out, report["tokens"], report["text"]), (b"", [], ""))
        self.assertEqual(report["context_tokens"], PROMPT_TOKENS)
        self.assertIsNone(report["ttft_ms"])

    def test_threads_chunks_and_mapping_change_no_bit(self):
        hashes = set()
        for words in ([], ["-t", 1], ["-t", 3], ["--prefill-chunk", 1], ["--prefill-chunk", 7, "--no-mmap"],
                      ["--draft", "ngram"]):  # fmt: skip
            outcome, report = self.report("-n", 60, "--logits-hash", *words)
            self.assertIn(report["logits_hash"], outcome.err)
            hashes.add((report["logits_hash"], report["text"]))
        self.assertEqual(len(hashes), 1)

    def test_a_draft_says_how_many_guesses_came_true_and_other_drafts_are_refused(self):
        _, plain = self.report("-n", 60)
        outcome, report = self.report("-n", 60, "-v", "--draft", "ngram")
        self.assertEqual((plain["drafted"], plain["accepted"]), (0, 0))
        self.assertGreater(report["drafted"], report["accepted"] - 1)
        if report["drafted"]:
            self.assertIn(f"{report['accepted']} of {report['drafted']} guessed tokens were right", outcome.err)
        refused = kvtide("run", "-m", LLAMA, "-p", "a", "--draft", "tree")
        self.assertEqual(refused.status, 2)
        self.assertIn("--draft: there is ngram, not 'tree'", refused.err)

    def test_the_hash_tells_texts_and_lengths_apart(self):
        hashes = [self.report(*words, prompt=prompt)[1]["logits_hash"] for words, prompt in
                  [(("-n", 0), ("-p", "the tide")), (("-n", 0), ("-p", "the side")), (("-n", 3), ("-p", "the tide"))]]  # fmt: skip
        self.assertEqual(len(set(hashes)), 3)
        # The first choice is made from the logits of the prompt alone.
        self.assertEqual(self.report("-n", 1, prompt=("-p", "the tide"))[1]["logits_hash"], hashes[0])

    def test_a_seed_repeats_a_choice_and_another_one_changes_it(self):
        hot = ("-n", 30, "--temp", 3, "--top-k", 0, "--top-p", 1, "--min-p", 0)
        first, again, other = (self.report(*hot, "-s", seed)[1]["tokens"] for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_a_stop_text_ends_the_answer_before_it(self):
        _, report = self.report("-n", 12)
        stop = report["text"][4:6]
        first = report["text"].index(stop)
        outcome, stopped = self.report("-n", 12, "--stop", "never", "--stop", stop)
        self.assertEqual(outcome.text, report["text"][:first])
        self.assertEqual(stopped["stop_reason"], "stop_string")

    def test_a_prompt_may_come_from_stdin(self):
        _, expected = self.report("-n", 4)
        for words in ([], ["-f", "-"]):
            outcome = self.assert_fine(kvtide("run", "-m", LLAMA, "-n", 4, *words, stdin=TEXT.read_bytes()))
            self.assertEqual(outcome.text, expected["text"])

    def test_a_prompt_from_stdin_loses_the_line_feed_that_echo_adds(self):
        def ids(*words, stdin=b""):
            return self.assert_fine(kvtide("tokenize", "-m", LLAMA, "--json", *words, stdin=stdin)).json["ids"]

        plain = ids("-p", "the tide")
        for ending in (b"", b"\n", b"\r\n"):
            self.assertEqual(ids(stdin=b"the tide" + ending), plain)
        self.assertNotEqual(ids(stdin=b"the tide\n\n"), plain)
        self.assertNotEqual(ids("-f", "-", stdin=b"the tide\n"), plain)
        self.assert_refused(kvtide("run", "-m", LLAMA, stdin=b"\n"), 4, "stdin", "empty")

    def test_a_document_and_a_question_are_read_as_one_text(self):
        _, both = self.report("-n", 4, prompt=("-f", TEXT, "-p", "who came?"))
        whole = self.file("whole.txt", TEXT.read_bytes().rstrip(b"\n") + b"\n\nwho came?")
        _, expected = self.report("-n", 4, prompt=("-f", whole))
        self.assertEqual((both["logits_hash"], both["tokens"]), (expected["logits_hash"], expected["tokens"]))

    def test_byte_order_marks_and_carriage_returns_are_told_and_taken_out_on_request(self):
        plain = self.file("plain.txt", b"the tide\ncame in\n")
        other = self.file("other.txt", b"\xef\xbb\xbfthe tide\r\ncame in\r\n")
        tokens = lambda path, *words: self.assert_fine(kvtide("tokenize", "-m", GEMMA, "-f", path, "--json", *words))
        as_it_is, without = tokens(other), tokens(other, "--text-newlines")
        self.assertIn("holds a byte order mark and 2 lines that end in CR LF", as_it_is.err)
        self.assertIn("--text-newlines", as_it_is.err)
        self.assertIn("it is read without", without.err)
        self.assertEqual(without.json["ids"], tokens(plain).json["ids"])
        # This vocabulary cannot spell what was taken out.
        self.assertIn("no token for 5 of 22 bytes", as_it_is.err)
        self.assertNotIn("no token", without.err)
        self.assertNotIn("note", tokens(plain).err)

    def test_a_context_that_fills_while_writing_keeps_the_answer_and_says_so(self):
        path = self.folder / "report.json"
        outcome = kvtide("run", "-m", LLAMA, "-f", TEXT, "-c", 84, "-n", 50, "--report", path)
        report = json.loads(path.read_text("utf-8"))
        self.assertEqual(outcome.status, 7, outcome.err)
        self.assertEqual(outcome.text, report["text"])
        self.assertEqual((report["context_tokens"], report["stop_reason"]), (84, "context_full"))
        self.assertIn("context of 84 tokens is full", outcome.err.splitlines()[-1])

    def test_going_beyond_the_trained_context_warns_once(self):
        long = self.file("long.txt", TEXT.read_bytes() * 4)
        outcome = self.assert_fine(kvtide("run", "-m", LLAMA, "-f", long, "-c", 1000, "-n", 20))
        self.assertEqual(outcome.err.count("warning"), 1)
        self.assertIn("256", next(line for line in outcome.err.splitlines() if "warning" in line))
        short = self.assert_fine(kvtide("run", "-m", LLAMA, "-f", TEXT, "-c", 1000, "-n", 20))
        self.assertNotIn("warning", short.err)


class Ppl(ProgramTest):
    def score(self, *words):
        text = self.file("text.txt", TEXT.read_bytes() * 4)  # 320 tokens
        return self.assert_fine(kvtide("ppl", "-m", LLAMA, "-f", text, "--json", *words)).json

    def test_chunks_are_scored_by_the_rule(self):
        score = self.score("-c", 40, "--chunks", 3)
        self.assertLessEqual({"ppl", "ppl_se", "tokens_scored", "chunks", "seconds"}, score.keys())
        self.assertEqual(score["tokens_scored"], 3 * (40 - 20 - 1))
        self.assertEqual(len(score["chunks"]), 3)
        self.assertEqual(score["chunks"][-1], score["ppl"])

    def test_the_first_chunk_agrees_with_the_golden_logits(self):
        # A chunk of all 80 tokens has positions 40 to 78 scored, from the logits that transformers gave.
        score = self.score("-c", PROMPT_TOKENS, "--chunks", 1, *EXACT)
        ids = self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-f", TEXT, "--json")).json["ids"]
        _, golden = read_npy(LLAMA.with_name("llama-mha-untied.logits.npy"))
        losses = []
        for position in range(PROMPT_TOKENS // 2, PROMPT_TOKENS - 1):
            row = golden[position * VOCABULARY : (position + 1) * VOCABULARY]
            losses.append(math.log(sum(math.exp(value) for value in row)) - row[ids[position + 1]])
        self.assertAlmostEqual(score["ppl"], math.exp(sum(losses) / len(losses)), places=3)

    def test_a_stream_scores_every_token_but_the_first(self):
        score = self.score("--stream", "--bucket", 100, "-c", 256)
        self.assertEqual(score["tokens_scored"], 255)
        self.assertEqual([(b["first"], b["last"]) for b in score["buckets"]], [(0, 100), (100, 200), (200, 256)])
        self.assertEqual([b["tokens_scored"] for b in score["buckets"]], [99, 100, 56])

    def test_plain_output_ends_with_the_score(self):
        text = self.file("text.txt", TEXT.read_bytes() * 4)
        outcome = self.assert_fine(kvtide("ppl", "-m", LLAMA, "-f", text, "-c", 40))
        self.assertRegex(outcome.text.splitlines()[-1], r"^ppl \d+\.\d+ \+/- \d+\.\d+ over 152 tokens$")


class Bench(ProgramTest):
    def test_every_case_has_the_promised_keys(self):
        words = ("-p", 16, "-n", 4, "-d", "0,20", "-r", 2, "-t", 1, "--json")
        cases = self.assert_fine(kvtide("bench", "-m", LLAMA, *words)).json
        self.assertEqual([(c["test"], c["n"], c["depth"]) for c in cases],
                         [("pp", 16, 0), ("tg", 4, 0), ("pp", 16, 20), ("tg", 4, 20)])  # fmt: skip
        for case in cases:
            self.assertLessEqual(
                {"test", "n", "depth", "threads", "tok_s", "ms_tok", "gb_s", "limit_share", "logits_hash"}, case.keys()
            )
            self.assertEqual(case["threads"], 1)
            self.assertGreater(case["tok_s"], 0)
            self.assertAlmostEqual(case["tok_s"] * case["ms_tok"], 1000, places=3)
            self.assertRegex(case["logits_hash"], "^[0-9a-f]{16}$")
        # Other depths, other texts; and reading leaves other logits than writing.
        self.assertEqual(len({case["logits_hash"] for case in cases}), 4)

    def test_the_hash_of_a_text_is_the_same_in_another_run_with_other_threads(self):
        def hashes(*words):
            words = ("-f", TEXT, "-p", 30, "-n", 5, "-d", "40", "-r", 1, "--json", *words)
            return [case["logits_hash"] for case in self.assert_fine(kvtide("bench", "-m", LLAMA, *words)).json]

        self.assertEqual(hashes("-t", 1), hashes("-t", 3, "--prefill-chunk", 8))

    def test_sessions_that_share_a_pass_write_the_bits_of_one_alone(self):
        words = ("-p", 0, "-n", 3, "-d", 20, "-r", 2, "--json")
        alone, together = (self.assert_fine(kvtide("bench", "-m", LLAMA, *words, *more)).json[0]
                           for more in ([], ["--sessions", 5]))  # fmt: skip
        self.assertEqual(alone["logits_hash"], together["logits_hash"])
        self.assertEqual((alone["sessions"], together["sessions"], together["limit_share"]), (1, 5, None))
        self.assertIn("tg3x5", self.assert_fine(kvtide("bench", "-m", LLAMA, *words[:-1], "--sessions", 5)).text)
        self.assert_refused(kvtide("bench", "-m", LLAMA, "--sessions", 2, "--profile"), 2, "--sessions and --profile")
        self.assert_refused(kvtide("bench", "-m", LLAMA, "--sessions", 0), 2, "--sessions", "1 to 256")

    def test_the_table_opens_with_the_limits_of_the_machine(self):
        outcome = self.assert_fine(kvtide("bench", "-m", LLAMA, "-p", 8, "-n", 0, "-r", 1))
        lines = outcome.text.splitlines()
        self.assertRegex(lines[0], r"[\d.]+ GB/s read, \d+ GFLOP/s f32, \d+ bf16, \d+ GOP/s int8$")
        self.assertRegex(lines[2], r"^pp8 +0 ")
        self.assertEqual(len(lines), 3)


    def test_a_profile_tells_parts_that_add_up_to_the_time(self):
        words = ("-p", 16, "-n", 0, "-d", 40, "-r", 1, "--profile")
        case = self.assert_fine(kvtide("bench", "-m", LLAMA, *words, "--json")).json[0]
        parts = {part["part"]: part for part in case["profile"]}
        self.assertLessEqual({"matmul", "attention", "head", "rest"}, parts.keys())
        self.assertAlmostEqual(sum(part["ms_tok"] for part in parts.values()), case["ms_tok"], delta=0.2 * case["ms_tok"])
        # 2 layers, 4 heads of 8 elements: a product and a sum for every element of the visible keys and values, in the last
        # layer for the row that becomes logits only.
        visible = sum(range(41, 57)) + 56
        self.assertEqual(parts["attention"]["operations"], visible * 4 * 8 * 2 * 2)
        self.assertIn("attention", self.assert_fine(kvtide("bench", "-m", LLAMA, *words)).text)

    def test_compressed_memories_have_no_limit(self):
        words = ("-p", 16, "-n", 2, "-d", 100, "-r", 1, "--kv-proc", "on", "--kv-window", 32, "--kv-block", 16, "--kv-salient", 4, "--json")
        for case in self.assert_fine(kvtide("bench", "-m", LLAMA, *words)).json:
            self.assertIsNone(case["limit_share"])
            self.assertGreater(case["tok_s"], 0)

    def test_the_plot_shows_every_engine_and_the_limit(self):
        rows, plot = self.folder / "rows.json", self.folder / "speed.svg"
        case = {"engine": "other & <old>", "model": "Some model", "test": "pp", "depth": 0, "tok_s": 50.0, "limit_tok_s": None}
        rows.write_text(json.dumps([case, case | {"depth": 64, "tok_s": 25.5}]))
        self.assert_fine(kvtide("bench", "-m", LLAMA, "-p", 8, "-n", 2, "-d", "0,32", "-r", 1, "--plot", plot, "--rows", rows))
        texts = [element.text for element in xml.etree.ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}text")]
        for wanted in ("kvtide", "limit", "other & <old>", "Some model: reading"):
            self.assertIn(wanted, texts)
        self.assertNotIn("Some model: writing", texts)
        # Without a model the rows alone.
        self.assert_fine(kvtide("bench", "--rows", rows, "--plot", plot))
        self.assertNotIn(">kvtide<", plot.read_text())

    def test_rows_that_cannot_be_drawn_are_named(self):
        rows = self.folder / "rows.json"
        good = {"engine": "x", "model": "y", "test": "tg", "depth": 1, "tok_s": 2.0}
        for wrong, words in [({"test": "xx"}, ["row 2", "pp or tg"]), ({"tok_s": "fast"}, ["row 2", "tok_s"]),
                             ({"depth": -1}, ["row 2", "depth"]), ({"engine": 5}, ["row 2", "engine"])]:  # fmt: skip
            rows.write_text(json.dumps([good, good | wrong]))
            self.assert_refused(kvtide("bench", "--rows", rows, "--plot", self.folder / "p.svg"), 4, *words)
        rows.write_text("{}")
        self.assert_refused(kvtide("bench", "--rows", rows, "--plot", self.folder / "p.svg"), 4, "a list")
        self.assert_refused(kvtide("bench", "-m", LLAMA, "--rows", rows), 2, "--plot")
        self.assertFalse((self.folder / "p.svg").exists())


class Inspect(ProgramTest):
    def test_json_holds_what_the_file_holds(self):
        answer = self.assert_fine(kvtide("inspect", LLAMA, "--json")).json
        self.assertEqual((answer["format"], answer["architecture"]), ("gguf", "llama"))
        self.assertEqual(answer["metadata"]["llama.context_length"], 256)
        self.assertEqual(answer["metadata"]["tokenizer.ggml.tokens"]["count"], VOCABULARY)
        self.assertEqual(len(answer["tensors"]), 21)
        self.assertEqual(answer["tensors"][0], {"name": "token_embd.weight", "type": "f32", "shape": [32, 64], "bytes": 8192})
        self.assertEqual(answer["parameters"], 2 * 2048 + 2 * (7 * 1024 + 64) + 32)

    def test_kv_costs_follow_from_the_shape(self):
        answer = self.assert_fine(kvtide("inspect", LLAMA, "--json")).json
        # Keys and values of 2 layers, 4 KV heads of 8 numbers; 8 numbers do not fill a block of 32.
        self.assertEqual(answer["kv_bytes_per_token"], {"f32": 512, "f16": 256, "q8_0": None, "q4_0": None})
        self.assertEqual(answer["kv_bytes"]["4096"], {"f32": 4096 * 512, "f16": 4096 * 256, "q8_0": None, "q4_0": None})

    def test_sliding_windows_bound_the_cost(self):
        manifest = json.loads((MODELS / "manifest.json").read_text("utf-8"))
        config = next(m["config"] for m in manifest["models"] if m["model"] == GEMMA.name)
        answer = self.assert_fine(kvtide("inspect", GEMMA, "--json")).json
        layers, window = config["num_hidden_layers"], config["sliding_window"]
        global_layers = sum((i + 1) % 6 == 0 for i in range(layers))
        rows = 100000 * global_layers + window * (layers - global_layers)
        row = 2 * config["num_key_value_heads"] * config["head_dim"]
        self.assertEqual(answer["kv_bytes"]["100000"]["f16"], rows * row * 2)

    def test_a_file_of_an_unknown_architecture_is_still_shown(self):
        path = self.file("other.gguf", LLAMA.read_bytes().replace(b"llama", b"lxama"))
        answer = self.assert_fine(kvtide("inspect", path, "--json")).json
        self.assertEqual((answer["architecture"], answer["kv_bytes_per_token"]), ("lxama", None))
        self.assertEqual(len(answer["tensors"]), 21)
        plain = self.assert_fine(kvtide("inspect", path)).text
        self.assertIn("KV memory: cannot be computed", plain)
        self.assertRegex(plain, r"blk\.\*\.ffn_down\.weight +2 x ")
        self.assertNotIn("blk.1.", plain)
        whole = self.assert_fine(kvtide("inspect", path, "-v")).text
        for tensor in answer["tensors"]:
            self.assertIn(f"  {tensor['name']} ", whole)

    def test_what_a_hostile_file_says_is_printed_escaped(self):
        path = self.file("escape.gguf", LLAMA.read_bytes().replace(b"llama-mha-untied", b"\x1b[2Jllama\n\x07untie"))
        outcome = self.assert_fine(kvtide("inspect", path))
        self.assertIn(r"\x1b[2Jllama\x0a\x07untie", outcome.text)
        self.assertNotIn("\x1b", outcome.text + self.assert_fine(kvtide("run", "-m", path, "-p", "a", "-n", 1)).err)


class Tokenize(ProgramTest):
    def test_ids_are_those_of_the_golden_text(self):
        golden = (MODELS / "tiny.ids.npy").read_bytes()
        ids = array("i", golden[-4 * PROMPT_TOKENS :]).tolist()
        answer = self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-f", TEXT, "--json")).json
        self.assertEqual(answer["ids"], ids)
        self.assertEqual("".join(answer["pieces"]), TEXT.read_text("utf-8"))

    def test_plain_lines_hold_the_id_and_the_piece(self):
        outcome = self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-p", "the\n"))
        self.assertEqual(outcome.text, "23\t't'\n51\t'he'\n41\t'\\x0a'\n")

    def test_markers_are_tokens_or_text(self):
        special = self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-p", "a</s>b", "--json")).json
        self.assertEqual((special["ids"], special["pieces"]), ([4, 2, 5], ["a", "</s>", "b"]))
        plain = kvtide("tokenize", "-m", LLAMA, "-p", "a</s>b", "--json", "--no-special")
        self.assertEqual(self.assert_fine(plain).json["pieces"], ["a", "s", "b"])
        self.assertIn("no token for 3 of 6 bytes", plain.err)


class Logits(ProgramTest):
    def logits(self, *words, text=TEXT):
        path = self.folder / "logits.npy"
        self.assert_fine(kvtide("logits", "-m", LLAMA, "-f", text, "--out", path, *words))
        return read_npy(path)

    def test_all_positions_agree_with_the_golden(self):
        shape, values = self.logits("--all", *EXACT)
        _, golden = read_npy(LLAMA.with_name("llama-mha-untied.logits.npy"))
        self.assertEqual(shape, (PROMPT_TOKENS, VOCABULARY))
        self.assertLess(max(abs(a - b) for a, b in zip(values, golden)), 2e-4)

    def test_without_all_the_last_row_is_written(self):
        _, every = self.logits("--all")
        shape, last = self.logits()
        self.assertEqual(shape, (VOCABULARY,))
        self.assertEqual(last, every[-VOCABULARY:])

    def test_chunks_change_no_bit(self):
        self.assertEqual(self.logits("--all", "--prefill-chunk", 1), self.logits("--all", "--prefill-chunk", 33))

    def test_nothing_else_is_left_in_the_folder(self):
        self.logits()
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["logits.npy"])


if __name__ == "__main__":
    unittest.main()
