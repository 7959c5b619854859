"""Chat: turns that read only what is new, and a memory that holds the text that the template would write at once."""

import json
import unittest

from commands_test import VOCABULARY, best, read_npy
from program import LLAMA, ProgramTest, kvtide

# Of this template's markers the tiny vocabulary can spell </s>, its end token, and the space.
CHAT = ("chat", "-m", LLAMA, "--chat-template", "mistral-instruct")
INSTRUCTED = "[INST] {} [/INST]"


class Turns(ProgramTest):
    def talk(self, lines, *words):
        path = self.folder / "report.json"
        outcome = kvtide(*CHAT, "--report", path, *words, stdin="".join(line + "\n" for line in lines).encode())
        return outcome, json.loads(path.read_text("utf-8"))

    def tokens_of(self, text):
        return self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-p", text, "--json")).json["ids"]

    def test_the_second_turn_reads_only_its_new_tokens(self):
        outcome, report = self.talk(["the tide came in", "and again"], "-n", 3)
        self.assert_fine(outcome)
        first, second = report["turns"]
        self.assertEqual(first["prefill_tokens"], len(self.tokens_of(INSTRUCTED.format("the tide came in"))))
        # The end marker of the first answer was not read by it and comes with the next turn.
        self.assertEqual(second["prefill_tokens"], len(self.tokens_of("</s>" + INSTRUCTED.format("and again"))))
        self.assertEqual(report["prefill_tokens"], first["prefill_tokens"] + second["prefill_tokens"])
        self.assertEqual(report["context_tokens"], report["prefill_tokens"] + report["decode_tokens"])
        self.assertIn(f"read {second['prefill_tokens']} new tokens", outcome.err)

    def test_the_memory_holds_the_text_that_the_template_writes_at_once(self):
        _, report = self.talk(["the tide came in", "and again"], "-n", 1)
        self.assertEqual([turn["decode_tokens"] for turn in report["turns"]], [1, 1])
        first_answer = report["text"].split("\n")[0]
        whole = INSTRUCTED.format("the tide came in") + first_answer + "</s>" + INSTRUCTED.format("and again")
        self.assertEqual(len(self.tokens_of(whole)), report["context_tokens"] - 1)
        out = self.folder / "logits.npy"
        self.assert_fine(kvtide("logits", "-m", LLAMA, "-p", whole, "--out", out))
        shape, row = read_npy(out)
        self.assertEqual(shape, (VOCABULARY,))
        self.assertEqual(report["tokens"][1], best(row))

    def test_a_turn_is_what_run_says_with_the_same_template(self):
        outcome, _ = self.talk(["the tide"], "-n", 6)
        words = ("--chat", "--chat-template", "mistral-instruct", "-p", "the tide", "-n", 6)
        self.assertEqual(outcome.text, self.assert_fine(kvtide("run", "-m", LLAMA, *words)).text + "\n")

    def test_markers_that_a_user_types_are_text(self):
        _, typed = self.talk(["a</s>b"], "-n", 0)
        _, letters = self.talk(["asb"], "-n", 0)
        self.assertEqual(typed["logits_hash"], letters["logits_hash"])

    def test_a_system_message_comes_first(self):
        _, report = self.talk(["and you"], "-n", 0, "-p", "be kind")
        self.assertEqual(report["prefill_tokens"], len(self.tokens_of(INSTRUCTED.format("be kind\n\nand you"))))

    def test_clear_forgets_the_turns_and_their_memory(self):
        _, twice = self.talk(["the tide", "/clear", "the tide"], "-n", 4)
        first, second = twice["turns"]
        self.assertEqual(first["prefill_tokens"], second["prefill_tokens"])
        self.assertEqual(twice["context_tokens"], second["prefill_tokens"] + second["decode_tokens"])

    def test_exit_ends_before_what_follows_and_unknown_words_are_explained(self):
        outcome, report = self.talk(["/help", "/claer", "the tide", "/exit", "never read"], "-n", 2)
        self.assert_fine(outcome)
        self.assertEqual(len(report["turns"]), 1)
        self.assertIn("did you mean /clear?", outcome.err)

    def test_a_message_that_does_not_fit_is_dropped_and_the_talk_goes_on(self):
        outcome, report = self.talk(["the tide", "a" * 60, "in"], "-n", 2, "-c", 50)
        self.assertEqual(outcome.status, 7)
        self.assertEqual(len(report["turns"]), 2)
        self.assertIn("/clear starts anew", outcome.err)

    def test_a_message_that_is_not_utf8_is_dropped_and_named(self):
        path = self.folder / "report.json"
        outcome = kvtide(*CHAT, "-n", 1, "--report", path, stdin=b"\xff\nthe tide\n")
        self.assertEqual(outcome.status, 6)
        self.assertIn("UTF-8", outcome.err)
        self.assertEqual(len(json.loads(path.read_text("utf-8"))["turns"]), 1)


if __name__ == "__main__":
    unittest.main()
