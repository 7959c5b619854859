"""What a user can get wrong: one clear line, an exit status of its own, nothing half written."""

import os
import resource
import subprocess
import unittest

from program import LLAMA, TEXT, TIMEOUT_S, ProgramTest, environment, kvtide, PROGRAM

USAGE, NOT_FOUND, BAD_FORMAT, UNSUPPORTED, BAD_TEXT, CONTEXT_FULL, IO, NUMERIC = 2, 3, 4, 5, 6, 7, 8, 10


class ModelFiles(ProgramTest):
    def run_on(self, model):
        return kvtide("run", "-m", model, "-p", "the tide", "-n", 2)

    def test_a_missing_model_is_named(self):
        path = self.folder / "absent.gguf"
        self.assert_refused(self.run_on(path), NOT_FOUND, str(path), "No such file")

    @unittest.skipIf(os.geteuid() == 0, "root may read every file")
    def test_an_unreadable_model_is_named(self):
        path = self.file("closed.gguf", LLAMA.read_bytes())
        path.chmod(0)
        self.assert_refused(self.run_on(path), NOT_FOUND, str(path), "Permission denied")

    def test_a_directory_is_not_a_model(self):
        self.assert_refused(self.run_on(self.folder), BAD_FORMAT, str(self.folder), "is a directory")

    def test_an_empty_file_is_not_a_model(self):
        path = self.file("empty.gguf", b"")
        self.assert_refused(self.run_on(path), BAD_FORMAT, str(path), "empty")

    def test_a_text_file_is_not_a_model(self):
        path = self.file("notes.txt", b"not a model at all, just some words")
        self.assert_refused(self.run_on(path), BAD_FORMAT, str(path), "GGUF")

    def test_a_file_that_is_no_model_is_named_for_what_it_looks_like(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
        header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        files = [(pointer, "git-lfs pointer", "git lfs pull"), (b"\n<html><body>404</body></html>", "an HTML page", "download"),
                 (b"KVTIDE\0\1" + bytes(60), "a kvtide snapshot", "--load-state"), (b"PK\3\4" + bytes(60), "ZIP", "GGUF"),
                 (len(header).to_bytes(8, "little") + header + bytes(4), "a safetensors file", "config.json"),
                 (b'{"model_type": "llama"}', "a JSON file", "folder")]  # fmt: skip
        for content, kind, help_ in files:
            path = self.file("model.gguf", content)
            for command in ("run", "inspect"):
                words = ("-m", path, "-p", "a") if command == "run" else (path,)
                self.assert_refused(kvtide(command, *words), BAD_FORMAT, str(path), kind, "not a model", help_)

    def test_a_truncated_model_says_where_the_file_ends(self):
        whole = LLAMA.read_bytes()
        path = self.file("short.gguf", whole[: len(whole) * 3 // 4])
        self.assert_refused(self.run_on(path), BAD_FORMAT, str(path), "tensor", str(len(whole) * 3 // 4))

    def test_an_unknown_architecture_is_named_with_the_known_ones(self):
        path = self.file("other.gguf", LLAMA.read_bytes().replace(b"llama", b"lxama"))
        self.assert_refused(self.run_on(path), UNSUPPORTED, "'lxama'", "llama", "gemma3", "qwen2", "qwen3")

    def test_an_unknown_tensor_type_is_named(self):
        content = bytearray(LLAMA.read_bytes())
        name = b"output_norm.weight"
        # Behind the name: the number of dimensions (1), one extent, the type.
        at = content.index(name) + len(name) + 4 + 8
        self.assertEqual(content[at : at + 4], b"\0\0\0\0")
        content[at : at + 4] = (99).to_bytes(4, "little")
        outcome = self.run_on(self.file("typed.gguf", bytes(content)))
        self.assert_refused(outcome, UNSUPPORTED, "'output_norm.weight'", "99")

    def test_weights_that_are_no_numbers_are_refused(self):
        content = bytearray(LLAMA.read_bytes())
        content[-4:] = b"\0\0\xc0\x7f"  # NaN
        self.assert_refused(self.run_on(self.file("nan.gguf", bytes(content))), NUMERIC, "NaN", "weight")

    def test_a_copied_file_is_checked_as_a_mapped_one_is(self):
        path = self.file("short.gguf", LLAMA.read_bytes()[:5000])
        self.assert_refused(kvtide("run", "-m", path, "-p", "a", "--no-mmap"), BAD_FORMAT, str(path))


class Words(ProgramTest):
    def test_a_word_without_its_flag_is_told_where_it_belongs(self):
        self.assert_refused(kvtide("run", "smollm2"), USAGE, "'smollm2'", "if it is the model: kvtide run -m smollm2")
        self.assert_refused(kvtide("chat", "smollm2"), USAGE, "kvtide chat -m smollm2")
        self.assert_refused(kvtide("run", "-m", LLAMA, "the tide"), USAGE, "a prompt stands behind -p, in quotes")

    def test_what_is_given_twice_is_refused_instead_of_lost(self):
        for words, flag in ((("-p", "a", "-p", "b"), "-p"), (("-p", "a", "--prompt", "b"), "--prompt"), (("-f", "a", "-f", "b"), "-f"),
                            (("--chat", "-p", "a", "--system", "a", "--system", "b"), "--system"), (("-m", "b", "-p", "a"), "-m")):  # fmt: skip
            self.assert_refused(kvtide("run", "-m", LLAMA, *words), USAGE, f"{flag}: is given twice", "'b'")

    def test_counts_may_end_in_a_unit(self):
        plain = kvtide("run", "-m", LLAMA, "-p", "a", "-n", 2, "-c", 2048).text
        self.assertEqual(self.assert_fine(kvtide("run", "-m", LLAMA, "-p", "a", "-n", 2, "-c", "2K")).text, plain)
        self.assertIn("context 65,536", self.assert_fine(kvtide("run", "-m", LLAMA, "-p", "a", "-n", 0, "-c", "64k")).err)
        for count in ("K", "2KB", "-1K", "9999999M", "1.5K"):
            self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "-c", count), USAGE, "-c", "whole number", count)


class Texts(ProgramTest):
    def test_a_prompt_that_is_not_utf8_gives_the_offset(self):
        outcome = kvtide("run", "-m", LLAMA, "-p", b"the \xff tide".decode("utf-8", "surrogateescape"))
        self.assert_refused(outcome, BAD_TEXT, "-p", "byte 4", "UTF-8")

    def test_a_file_that_is_not_utf8_is_named_with_the_offset(self):
        path = self.file("latin1.txt", b"the tide \xe9")
        for command in ("run", "tokenize", "ppl"):
            self.assert_refused(kvtide(command, "-m", LLAMA, "-f", path), BAD_TEXT, str(path), "byte 9")

    def test_a_question_that_is_not_utf8_is_told_apart_from_its_document(self):
        question = b"\xc3\x28".decode("utf-8", "surrogateescape")
        self.assert_refused(kvtide("run", "-m", LLAMA, "-f", TEXT, "-p", question), BAD_TEXT, "-p", "byte 0")

    def test_stdin_that_is_not_utf8_gives_the_offset(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, stdin=b"ab\x80"), BAD_TEXT, "stdin", "byte 2")

    def test_missing_and_empty_texts_are_named(self):
        absent, empty = self.folder / "absent.txt", self.file("empty.txt", b"")
        self.assert_refused(kvtide("run", "-m", LLAMA, "-f", absent), NOT_FOUND, str(absent))
        self.assert_refused(kvtide("run", "-m", LLAMA, "-f", empty), BAD_FORMAT, str(empty), "empty")
        self.assert_refused(kvtide("run", "-m", LLAMA, "-f", self.folder), BAD_FORMAT, "directory")
        self.assert_refused(kvtide("run", "-m", LLAMA), BAD_FORMAT, "stdin", "empty")

    def test_a_prompt_without_tokens_is_refused(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", ""), USAGE, "no tokens")

    def test_a_prompt_longer_than_the_context_says_both_numbers_before_reading(self):
        for command in (["run"], ["logits", "--out", self.folder / "x.npy"]):
            outcome = kvtide(command[0], "-m", LLAMA, "-f", TEXT, "-c", 40, *command[1:])
            self.assert_refused(outcome, CONTEXT_FULL, "80 tokens", "40", "-c 80")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_text_longer_than_what_the_model_knows_is_refused_with_a_budget_and_its_cost(self):
        long = self.file("long.txt", TEXT.read_bytes() * 10)
        outcome = kvtide("run", "-m", LLAMA, "-f", long)
        # 800 tokens of 2 layers with 4 heads of 8: keys and values in f16.
        self.assert_refused(outcome, CONTEXT_FULL, "800 tokens", "256", "--kv-budget 64M", "at most 64.0 MiB", "would take 200.0 KiB")
        self.assertNotIn("-c ", outcome.err)
        self.assertEqual(kvtide("run", "-m", LLAMA, "-f", long, "--kv-budget", "64M", "-n", 1).status, 0)

    def test_a_text_too_short_for_perplexity_says_what_it_needs(self):
        self.assert_refused(kvtide("ppl", "-m", LLAMA, "-f", TEXT, "-c", 64), USAGE, "80 tokens", "128")

    def test_a_text_too_short_for_the_bench_says_what_it_needs(self):
        outcome = kvtide("bench", "-m", LLAMA, "-f", TEXT, "-p", 90, "-n", 1)
        self.assert_refused(outcome, USAGE, str(TEXT), "80 tokens", "90")


class Flags(ProgramTest):
    def test_no_threads_are_refused_with_the_range(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "-t", 0), USAGE, "-t", "1 to 256", "'0'")

    def test_values_out_of_range_name_the_flag_and_the_range(self):
        for flag, value, wanted in [("-c", "0", "1 to"), ("-n", "-2", "-1 to"), ("--temp", "nan", "0 to"),
                                    ("--temp", "-1", "0 to"), ("--top-p", "1.5", "to 1"), ("--min-p", "x", "0 to 1"),
                                    ("-s", "1e3", "-1 to"), ("--prefill-chunk", "0", "1 to 65536"), ("-n", "", "-1 to"),
                                    ("--repeat-penalty", "0", "0.01 to"), ("-ctk", "q4_1", "f32, f16, q8_0 or q4_0")]:  # fmt: skip
            with self.subTest(flag=flag, value=value):
                self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", flag, value), USAGE, flag, f"'{value}'", wanted)

    def test_an_unknown_flag_names_the_nearest_right_one(self):
        for wrong, right in [("--tmp", "--temp"), ("--top_k", "--top-k"), ("--thread", "--threads"), ("-T", "-t"),
                             ("--kernel=avx2", "--kernels"), ("--sede", "--seed")]:  # fmt: skip
            with self.subTest(flag=wrong):
                outcome = kvtide("run", "-m", LLAMA, "-p", "a", wrong, "1")
                self.assert_refused(outcome, USAGE, wrong.split("=")[0], f"did you mean {right}?")

    def test_names_that_other_programs_use_are_understood(self):
        own = self.assert_fine(kvtide("run", "-m", LLAMA, "-p", "the tide", "-n", 9, "-c", 50, "--temp", 0.8, "-s", 3))
        others = self.assert_fine(kvtide("run", "-m", LLAMA, "-p", "the tide", "--n-predict", 9, "--ctx=50",
                                         "--temperature", 0.8, "-s", 3))  # fmt: skip
        self.assertEqual(own.text, others.text)
        outcome = kvtide("run", "-m", LLAMA, "-p", "a", "--temperature", "hot")
        self.assert_refused(outcome, USAGE, "--temperature: the temperature must be")

    def test_flags_that_mean_nothing_here_say_what_to_do(self):
        for words, advice in [(("-ngl", 99), "computes on the processor"), (("-fa",), "leave it out"),
                              (("-fa", "on"), "leave it out"), (("--flash-attn=on",), "leave it out"), (("-i",), "kvtide chat"),
                              (("-cnv",), "kvtide chat"), (("-b", 512), "--prefill-chunk"), (("--prompt-cache", "x"), "--save-state"),
                              (("--context-shift",), "--kv-budget")]:  # fmt: skip
            with self.subTest(flag=words):
                self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", *words), USAGE, "has no flag", advice)

    def test_sizes_may_be_written_as_people_and_kvtide_write_them(self):
        plan = lambda size: kvtide("plan", "--like", "gemma-3-270m", "--json", "--budget", size)
        for size, wanted in [("64M", 64 << 20), ("64MB", 64 << 20), ("64 MiB", 64 << 20), ("64m", 64 << 20), ("0.5GiB", 1 << 29),
                             ("67108864", 64 << 20), ("67108864 B", 64 << 20), ("65536KiB", 64 << 20), ("1.00 GiB", 1 << 30)]:  # fmt: skip
            with self.subTest(size=size):
                self.assertEqual(self.assert_fine(plan(size)).json["budget"], wanted)
        for size in ("", "M", "MiB", "64iB", "64 ", "64X", "-1M", "64MM"):
            with self.subTest(size=size):
                self.assert_refused(plan(size), USAGE, "--budget: the budget must be a number of bytes", "64M or 1.5G")
        self.assert_refused(plan("1K"), USAGE, "a KV budget of 1024 bytes is too small", "use at least")

    def test_a_flag_of_another_command_is_told_whose_it_is(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "--chunks", "4"), USAGE, "--chunks", "belongs to", "ppl")

    def test_an_unknown_command_names_the_nearest(self):
        self.assert_refused(kvtide("tokenise", "-p", "a"), USAGE, "'tokenise'", "did you mean tokenize?")
        self.assert_refused(kvtide("quantize"), USAGE, "'quantize'", "inspect")

    def test_a_flag_before_the_command_is_explained(self):
        self.assert_refused(kvtide("-m", LLAMA), USAGE, "command comes first")

    def test_a_missing_value_says_what_belongs_there(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-n"), USAGE, "-n", "value is missing")

    def test_what_a_command_cannot_do_without_is_named(self):
        self.assert_refused(kvtide("run", "-p", "a"), USAGE, "-m MODEL")
        self.assert_refused(kvtide("inspect"), USAGE, "FILE")
        self.assert_refused(kvtide("ppl", "-m", LLAMA), USAGE, "-f FILE")
        self.assert_refused(kvtide("logits", "-m", LLAMA, "-p", "a"), USAGE, "--out")

    def test_stray_words_are_named(self):
        self.assert_refused(kvtide("run", LLAMA, "-p", "a"), USAGE, str(LLAMA))

    def test_unknown_kernels_and_templates_name_the_known_ones(self):
        self.assert_refused(kvtide("run", "-m", LLAMA, "-p", "a", "--kernels", "sse9"), UNSUPPORTED, "'sse9'", "scalar")
        outcome = kvtide("run", "-m", LLAMA, "-p", "a", "--chat", "--chat-template", "alpaca")
        self.assert_refused(outcome, UNSUPPORTED, "'alpaca'", "chatml", "gemma")

    def test_a_model_without_a_template_names_the_flag_that_helps(self):
        for words in (["chat"], ["run", "-p", "a", "--chat"]):
            self.assert_refused(kvtide(*words, "-m", LLAMA), UNSUPPORTED, str(LLAMA), "--chat-template", "chatml")


class Outputs(ProgramTest):
    def test_what_is_written_takes_the_place_of_nothing_else(self):
        text = self.file("text.txt", TEXT.read_bytes())
        report, model = self.folder / "r.json", self.file("model.gguf", LLAMA.read_bytes())
        words = ("run", "-m", model, "-f", text, "-n", 1, "--report")
        for more in ((report, "--save-state", report), (text,), (model,), (self.folder / "." / "text.txt",)):
            self.assert_refused(kvtide(*words, *more), USAGE, "--report", "its own file")
        self.assertEqual(text.read_bytes(), TEXT.read_bytes())
        self.assertEqual(model.read_bytes(), LLAMA.read_bytes())
        self.assert_fine(kvtide(*words, "/dev/null"))

    def test_a_report_for_a_folder_that_is_not_there_is_refused_before_reading(self):
        path = self.folder / "absent" / "report.json"
        outcome = kvtide("run", "-m", LLAMA, "-p", "the", "-n", 2, "--report", path)
        self.assert_refused(outcome, IO, str(path), "No such file")

    def test_a_report_cannot_replace_a_folder(self):
        outcome = kvtide("run", "-m", LLAMA, "-p", "the", "-n", 2, "--report", self.folder)
        self.assert_refused(outcome, IO, str(self.folder), "directory")

    def test_a_full_disk_for_the_report_is_named_and_leaves_nothing(self):
        with self.full_disk() as disk:
            before = sorted(disk.iterdir())
            path = disk / "report.json"
            outcome = kvtide("run", "-m", LLAMA, "-p", "the", "-n", 2, "--report", path)
            self.assertEqual(outcome.status, IO, outcome.err)
            self.assertIn(f"kvtide: {path}: ", outcome.err.splitlines()[-1])
            self.assertIn("No space left on device", outcome.err.splitlines()[-1])
            self.assertEqual(sorted(disk.iterdir()), before)

    def test_a_full_device_for_the_report_is_named_and_stays_what_it_is(self):
        outcome = kvtide("run", "-m", LLAMA, "-p", "the", "-n", 2, "--report", "/dev/full")
        self.assertEqual(outcome.status, IO, outcome.err)
        self.assertIn("kvtide: /dev/full: write failed: No space left", outcome.err)
        self.assertTrue(os.path.exists("/dev/full") and not os.path.isfile("/dev/full"))

    def test_a_limit_on_file_sizes_leaves_the_old_file(self):
        path = self.file("logits.npy", b"the old content")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        outcome = kvtide("logits", "-m", LLAMA, "-f", TEXT, "--all", "--out", path, preexec_fn=limit)
        self.assert_refused(outcome, IO, str(path), "File too large")
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["logits.npy"])
        self.assertEqual(path.read_bytes(), b"the old content")

    def test_a_stdout_that_is_full_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, "tokenize", "-m", LLAMA, "-p", "the"], stdout=full, stderr=subprocess.PIPE,
                                  env=environment(), check=False, timeout=TIMEOUT_S)  # fmt: skip
        self.assertEqual(done.returncode, IO)
        self.assertIn(b"kvtide: stdout: write failed", done.stderr)

    def full_disk(self):
        """A file system of a few pages that has no room left; skips the test where none can be mounted."""
        test = self

        class Disk:
            def __enter__(self):
                self.path = test.folder / "disk"
                self.path.mkdir()
                mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(self.path)]
                try:
                    mounted = subprocess.run(mount, capture_output=True, check=False, timeout=TIMEOUT_S).returncode == 0
                except OSError:
                    mounted = False
                if not mounted:
                    test.skipTest("needs the right to mount a small file system")
                with open(self.path / "filler", "wb", buffering=0) as filler:
                    try:
                        while True:
                            filler.write(bytes(4096))
                    except OSError:
                        pass
                return self.path

            def __exit__(self, *_):
                subprocess.run(["umount", str(self.path)], check=True, timeout=TIMEOUT_S)

        return Disk()


if __name__ == "__main__":
    unittest.main()
