"""Models by name: fetched, listed, found by -m. No test downloads anything: a python3 of the test's own stands in."""

import json
import os
import shutil
import subprocess
import unittest

from program import LLAMA, MODELS, PROGRAM, TIMEOUT_S, Outcome, ProgramTest, environment

USAGE, NOT_FOUND, IO = 2, 3, 8
STORES = ("HF_HUB_CACHE", "HF_HOME", "OLLAMA_MODELS")  # the machine's own


class NamedModels(ProgramTest):
    def setUp(self):
        super().setUp()
        self.models = self.folder / "cache" / "kvtide" / "models"
        self.models.mkdir(parents=True)

    def run_with(self, *words, path=None):
        more = {"XDG_CACHE_HOME": str(self.folder / "cache"), "HOME": str(self.folder)} | dict.fromkeys(STORES, "") | ({"PATH": str(path)} if path else {})
        done = subprocess.run([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=TIMEOUT_S, env=environment(**more))  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr.decode("utf-8"))

    def fill(self):
        shutil.copy(LLAMA, self.models / "Tiny-Llama-1.gguf")
        shutil.copy(MODELS / "gemma3-window.gguf", self.models / "tiny-gemma.gguf")
        (self.models / "broken.gguf").write_bytes(b"not a model")
        (self.models / "unknown.gguf").write_bytes(LLAMA.read_bytes().replace(b"llama", b"lxama"))
        (self.models / "split-00002-of-00003.gguf").write_bytes(b"")
        shutil.copytree(MODELS.parent / "folders" / "mistral-f16-shards", self.models / "a-folder")

    def test_a_list_says_what_runs_and_what_it_costs(self):
        self.fill()
        models = {model["name"]: model for model in self.assert_fine(self.run_with("models", "--json")).json}
        self.assertEqual(set(models), {"Tiny-Llama-1", "tiny-gemma", "broken", "unknown", "a-folder"})
        llama = models["Tiny-Llama-1"]
        self.assertEqual((llama["architecture"], llama["runs"], llama["why_not"], llama["trained_tokens"]), ("llama", True, None, 256))
        self.assertEqual(llama["file_bytes"], LLAMA.stat().st_size)
        self.assertEqual(llama["kv_bytes_100000"], 2 * 2 * 4 * 8 * 2 * 100000)  # layers, keys and values, heads, elements, f16
        self.assertTrue(models["a-folder"]["runs"])
        self.assertFalse(models["broken"]["runs"])
        self.assertEqual((models["unknown"]["architecture"], models["unknown"]["runs"]), ("lxama", False))
        text = self.assert_fine(self.run_with("models")).text
        self.assertRegex(text, r"Tiny-Llama-1 +llama +[\d.]+ KiB +yes +256 +24.4 MiB")
        self.assertIn("unknown.gguf: ", text)

    def test_a_model_is_found_by_its_name_or_the_beginning_of_it(self):
        self.fill()
        for name in ("Tiny-Llama-1", "tiny-llama-1", "tinyllama", "TINY-L"):
            with self.subTest(name=name):
                self.assert_fine(self.run_with("run", "-m", name, "-p", "the tide", "-n", 1))
        self.assert_fine(self.run_with("inspect", "tiny-gemma"))
        self.assert_refused(self.run_with("run", "-m", "tiny", "-p", "a"), USAGE, "-m tiny", "Tiny-Llama-1, tiny-gemma")
        self.assert_refused(self.run_with("run", "-m", "smollm2", "-p", "a"), NOT_FOUND, "-m smollm2", str(self.models), "kvtide fetch smollm2")
        self.assert_refused(self.run_with("run", "-m", "tiny-lama", "-p", "a"), NOT_FOUND, "did you mean Tiny-Llama-1?")

    def test_an_empty_folder_says_how_to_fill_it(self):
        outcome = self.assert_fine(self.run_with("models"))
        self.assertEqual(outcome.out, b"")
        self.assertIn("kvtide fetch smollm2", outcome.err)
        self.assertEqual(self.run_with("models", "--json").json, [])

    def stores(self):
        """The same model as Hugging Face, Ollama and LM Studio keep it."""
        hub = self.folder / "cache" / "huggingface" / "hub" / "models--Org--Tiny"
        for name, text in (("refs/main", "0123456789abcdef"), ("snapshots/0123456789abcdef/x", "")):
            (hub / name).parent.mkdir(parents=True)
            (hub / name).write_text(text)
        (hub / "snapshots/0123456789abcdef/tiny.gguf").symlink_to(LLAMA)
        ollama = self.folder / ".ollama" / "models"
        manifest = ollama / "manifests/registry.ollama.ai/library/tiny/latest"
        manifest.parent.mkdir(parents=True)
        layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:12ab"}
        manifest.write_text(json.dumps({"layers": [layer]}))
        (ollama / "blobs").mkdir()
        shutil.copy(LLAMA, ollama / "blobs" / "sha256-12ab")
        studio = self.folder / ".lmstudio" / "models" / "Org" / "Tiny"
        studio.mkdir(parents=True)
        shutil.copy(LLAMA, studio / "tiny.gguf")
        return ("hf:Org/Tiny", "lmstudio:Org/Tiny", "ollama:tiny")

    def test_models_that_other_programs_have_are_listed_and_run(self):
        names = self.stores()
        models = {model["name"]: model for model in self.assert_fine(self.run_with("models", "--json")).json}
        self.assertEqual(set(models), set(names))
        for name in (*names, "hf:Org/Tiny@012345/tiny.gguf", "ollama:library/tiny:latest"):
            with self.subTest(name=name):
                self.assert_fine(self.run_with("run", "-m", name, "-p", "the tide", "-n", 1))
        self.assert_refused(self.run_with("run", "-m", "hf:Org/Other", "-p", "a"), NOT_FOUND, "-m hf:Org/Other", "hf download Org/Other")
        self.assert_refused(self.run_with("run", "-m", "ollama:tiny:7b", "-p", "a"), NOT_FOUND, "no tag '7b'", "latest")

    def python3(self, script):
        folder = self.folder / "bin"
        folder.mkdir()
        path = folder / "python3"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    def test_fetch_hands_the_name_and_the_folder_to_the_script(self):
        path = self.python3(f'test "$1" = -c && case "$2" in *MODELS*) cp "{LLAMA}" "$4/$3-135m.gguf";; *) exit 9;; esac')
        outcome = self.assert_fine(self.run_with("fetch", "smollm2", path=path))
        self.assertIn("kvtide run -m smollm2", outcome.err)
        self.assert_fine(self.run_with("run", "-m", "smollm2", "-p", "a", "-n", 1))
        other = self.folder / "new" / "models"
        self.assert_fine(self.run_with("fetch", "gemma3", "--dir", other, path=path))
        self.assertTrue((other / "gemma3-135m.gguf").is_file())

    def test_a_failure_of_the_script_is_one_of_the_command(self):
        self.assertEqual(self.run_with("fetch", "smollm2", path=self.python3("echo kvtide: no network >&2; exit 1")).status, IO)

    def test_unknown_names_and_a_missing_python_are_explained(self):
        self.assert_refused(self.run_with("fetch", "gpt-9"), USAGE, "'gpt-9'", "smollm2, gemma3")
        self.assert_refused(self.run_with("fetch"), USAGE, "the name of a model")
        self.assert_refused(self.run_with("fetch", "smollm2", path=self.models), NOT_FOUND, "python3", "python3-venv")


if __name__ == "__main__":
    unittest.main()
