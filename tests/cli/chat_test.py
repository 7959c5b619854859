"""Chat: turns that read only what is new, and a memory that holds the text that the template would write at once."""

import fcntl
import json
import os
import pty
import select
import subprocess
import termios
import time
import unittest

from commands_test import VOCABULARY, best, read_npy
from program import LLAMA, PROGRAM, TIMEOUT_S, ProgramTest, environment, kvtide

# Of this template's markers the tiny vocabulary can spell </s>, its end token, and the space.
SAMPLED = ("chat", "-m", LLAMA, "--chat-template", "mistral-instruct")
CHAT = (*SAMPLED, "--temp", 0, "--repeat-penalty", 1)
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

    def test_a_talk_is_sampled_unless_flags_say_otherwise(self):
        words = ("--chat", "--chat-template", "mistral-instruct", "-p", "the tide", "-n", 20, "-s", 5)
        sampled = self.assert_fine(kvtide("run", "-m", LLAMA, *words, "--temp", 0.7, "--repeat-penalty", 1.1)).text
        greedy = self.assert_fine(kvtide("run", "-m", LLAMA, *words)).text
        self.assertNotEqual(sampled, greedy)
        self.assertEqual(self.assert_fine(kvtide(*SAMPLED, "-n", 20, "-s", 5, stdin=b"the tide\n")).text, sampled + "\n")

    def test_the_repeat_penalty_leaves_the_words_of_the_question_alone(self):
        words = ("-n", 1, "--temp", 0)
        plain = self.assert_fine(kvtide(*SAMPLED, *words, "--repeat-penalty", 1, stdin=b"the tide\n")).text
        letter = plain.strip()
        for command in ("chat", "run"):
            for message in (f"the tide {letter * 8}", "the tide"):
                answers = []
                for penalty in (1, 1000):
                    penalised = (*words, "--repeat-penalty", penalty, "--chat-template", "mistral-instruct")
                    told = ("-p", message, "--chat") if command == "run" else ()
                    answers.append(kvtide(command, "-m", LLAMA, *penalised, *told, stdin=message.encode()).text)
                self.assertEqual(answers[0], answers[1], (command, message))
        # In a text that goes on, they count.
        words = ("run", "-m", LLAMA, "-p", "the tide", "-n", 8, "--temp", 0, "--repeat-penalty")
        self.assertNotEqual(kvtide(*words, 1).text, kvtide(*words, 1000).text)

    def test_a_model_that_was_not_trained_to_chat_says_so_once(self):
        outcome, _ = self.talk(["the tide", "and again"], "-n", 1)
        self.assertEqual(outcome.err.count("hardly trained to chat"), 1)
        words = ("--chat", "--chat-template", "mistral-instruct", "-p", "the tide", "-n", 1)
        self.assertIn("hardly trained to chat", self.assert_fine(kvtide("run", "-m", LLAMA, *words)).err)
        refused = kvtide("chat", "-m", LLAMA, stdin=b"the tide\n")
        self.assert_refused(refused, 5, "brings no chat template", "kvtide run", "--chat-template")

    def test_run_holds_an_answer_to_a_grammar_or_a_schema(self):
        grammar = self.file("answer.gbnf", b'root ::= "the" [a-c]{3}')
        words = ("run", "-m", LLAMA, "-p", "the tide", "-n", 40)
        for more in ((), ("--draft", "ngram"), ("--temp", 2, "--top-k", 0)):
            self.assertRegex(self.assert_fine(kvtide(*words, "--grammar", grammar, *more)).text.strip(), "^the[a-c]{3}$")
        number = self.assert_fine(kvtide(*words, "--json-schema", '{"type": "integer", "minimum": 10, "maximum": 12}')).text
        self.assertIn(number.strip(), ("10", "11", "12"))
        for flags, part in ((("--json-schema", '{"pattern": "a"}'), "'pattern'"), (("--grammar", grammar, "--json-schema", "{}"), "--json-schema"),
                            (("--json-schema", "nowhere.json"), "nowhere.json")):  # fmt: skip
            outcome = kvtide(*words, *flags)
            self.assertNotEqual(outcome.status, 0)
            self.assertIn(part, outcome.err)

    def test_an_answer_that_repeats_itself_is_stopped(self):
        # Tokens that see nothing but themselves go round in a circle.
        words = ("-n", 2000, "-c", 5000, "--attention-size", 1)
        outcome, report = self.talk(["the tide"], *words)
        self.assert_fine(outcome)
        self.assertEqual(report["turns"][0]["stop_reason"], "loop")
        self.assertLess(report["turns"][0]["decode_tokens"], 1000)
        self.assertTrue(any(report["text"].endswith(report["text"][-n:] * max(4, 160 // n)) for n in range(1, 401)), report["text"])
        self.assertIn("began to repeat itself and was stopped", outcome.err)
        # run is left alone: it does what it is told.
        path = self.folder / "run.json"
        chat = ("--chat", "--chat-template", "mistral-instruct", "-p", "the tide")
        self.assert_fine(kvtide("run", "-m", LLAMA, *chat, *words, "--report", path))
        self.assertEqual(json.loads(path.read_text("utf-8"))["stop_reason"], "max_tokens")

    def test_undo_takes_a_turn_back_bit_for_bit(self):
        lines = ["the tide", "and again", "in the end"]
        _, whole = self.talk(["the tide", "in the end"], "-n", 4)
        outcome, undone = self.talk(["the tide", "and again", "/undo", "in the end"], "-n", 4)
        self.assertIn("the last message and its answer are taken back", outcome.err)
        self.assertEqual(undone["tokens"][8:], whole["tokens"][4:])
        self.assertEqual(undone["turns"][2]["prefill_tokens"], whole["turns"][1]["prefill_tokens"])
        self.assertEqual(undone["context_tokens"], whole["context_tokens"])
        _, first = self.talk(["the tide", "/undo", *lines[:1]], "-n", 4)
        self.assertEqual(first["tokens"][:4], first["tokens"][4:])
        outcome, _ = self.talk(["/undo"], "-n", 4)
        self.assertIn("nothing to take back", outcome.err)

    def test_undo_and_edit_go_back_where_a_window_has_moved_on(self):
        rolling = ("-n", 4, "--overflow", "rolling", "--kv-sinks", 2, "--kv-window", 24)
        lines = ["the tide came in", "and again " * 20, "in the end"]
        _, whole = self.talk([lines[0], lines[2]], *rolling)
        for more in ((lines[1], "/undo", lines[2]), (lines[1], f"/edit {lines[2]}")):
            outcome, undone = self.talk([lines[0], *more], *rolling)
            self.assertNotIn("read again", outcome.err)
            self.assertEqual(undone["tokens"][8:], whole["tokens"][4:])
            self.assertEqual(undone["turns"][2]["prefill_tokens"], whole["turns"][1]["prefill_tokens"])
        # With no room for checkpoints, everything is read again, to the same answer.
        outcome, undone = self.talk([lines[0], lines[1], "/undo", lines[2]], *rolling, "--kv-checkpoint-budget", 0)
        self.assertIn("what came before will be read again", outcome.err)
        self.assertEqual(undone["tokens"][8:], whole["tokens"][4:])
        outcome, _ = self.talk(["/edit", "/edit the tide"], "-n", 2)
        self.assertIn("say what to ask", outcome.err)
        self.assertIn("nothing to take back", outcome.err)

    def test_undo_reads_again_what_a_refill_has_forgotten(self):
        lines = ["the tide came in", "and again", "and so on", "in the end"]
        outcome, undone = self.talk([*lines, *["/undo"] * 4, "in"], "-n", 3, "-c", 40, "--overflow", "refill")
        self.assertIn("what came before will be read again", outcome.err)
        self.assertEqual(outcome.err.count("are taken back"), 4)
        self.assertEqual(undone["turns"][4]["prefill_tokens"], len(self.tokens_of(INSTRUCTED.format("in"))))

    def test_bye_ends_the_talk(self):
        for word in ("/bye", "/exit", "/quit"):
            _, report = self.talk(["the tide", word, "never read"], "-n", 2)
            self.assertEqual(len(report["turns"]), 1)

    def test_help_lists_every_command(self):
        outcome, _ = self.talk(["/help"], "-n", 2)
        for word in ("/undo", "/edit TEXT", "/clear", "/save FILE", "/load FILE", "/bye", "Ctrl-C"):
            self.assertIn(word, outcome.err)

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


class AtATerminal(ProgramTest):
    """Keys as a terminal sends them; messages as the memory received them."""

    UP, LEFT, BACKSPACE, CTRL_D, CTRL_C = b"\x1b[A", b"\x1b[D", b"\x7f", b"\x04", b"\x03"

    def talk(self, *pieces, status=0, **more):
        """Types the pieces, each when the prompt is there and the program has taken the terminal over, which comes a
        moment later: Ctrl-C and Ctrl-D mean other things before. Ctrl-C behind text waits for the text to be shown,
        because it takes away what nobody has read yet. Gives the report and what the terminal showed."""
        path = self.folder / "report.json"
        leader, follower = pty.openpty()
        words = (*CHAT, "-n", 2, "--report", path)
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdin=follower, stdout=subprocess.PIPE, stderr=follower,
                                   start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                   env=environment(TERM="xterm") | {"XDG_CACHE_HOME": str(self.folder)} | more)  # fmt: skip
        os.close(follower)
        shown, waiting, end = b"", list(pieces), time.monotonic() + TIMEOUT_S
        seen, waits_for, edits = 0, b"> ", more.get("TERM") != "dumb"
        while time.monotonic() < end:
            if not select.select([leader], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the program has closed the other end
                break
            shown += piece
            if waiting and waits_for in shown[seen:]:
                seen, piece = len(shown), waiting.pop(0)
                text, stop, _ = piece.partition(self.CTRL_C)
                waits_for = text if text and stop else b"> "
                if text and stop:
                    waiting.insert(0, stop)
                while edits and termios.tcgetattr(leader)[3] & termios.ICANON and time.monotonic() < end:
                    time.sleep(0.001)
                os.write(leader, text or stop)
        os.close(leader)
        process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.wait(TIMEOUT_S), status, shown)
        return json.loads(path.read_text("utf-8")), shown.decode("utf-8", "replace")

    def tokens_of(self, message):
        text = INSTRUCTED.format(message)
        return len(self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-p", text, "--no-special", "--json")).json["ids"])

    def tokens_of_later(self, message):  # the end marker of the answer before comes with it
        text = "</s>" + INSTRUCTED.format(message)
        return len(self.assert_fine(kvtide("tokenize", "-m", LLAMA, "-p", text, "--json")).json["ids"])

    def test_pasted_lines_are_one_message(self):
        pasted = b"\x1b[200~the tide\rcame in\rand again\x1b[201~"
        report, shown = self.talk(pasted + b"\r", b"/bye\r")
        self.assertEqual(len(report["turns"]), 1)
        piped = kvtide("run", "-m", LLAMA, "--chat", "--chat-template", "mistral-instruct", "-n", 2, "-p", "the tide\ncame in\nand again")
        self.assertEqual(report["text"], piped.text)
        self.assertIn("\x1b[?2004h", shown)
        self.assertTrue(shown.rindex("\x1b[?2004l") > shown.rindex("\x1b[?2004h"))

    def test_a_line_can_be_edited_and_called_back(self):
        report, _ = self.talk(b"the tidx" + self.BACKSPACE + b"e\r", self.UP + b"\r", b"he tide\x01t\r", b"/bye\r")
        self.assertEqual([turn["prefill_tokens"] for turn in report["turns"]][1:], [report["turns"][1]["prefill_tokens"]] * 2)
        self.assertEqual(report["turns"][0]["prefill_tokens"], self.tokens_of("the tide"))

    def test_the_history_is_there_the_next_time(self):
        first, _ = self.talk(b"the tide\r", self.CTRL_D)
        second, _ = self.talk(self.UP + self.UP + b"\r", self.UP + b"\r", b"/bye\r")
        self.assertEqual(first["turns"][0]["prefill_tokens"], second["turns"][0]["prefill_tokens"])
        history = self.folder / "kvtide" / "chat_history"
        self.assertEqual(history.stat().st_mode & 0o777, 0o600)

    def test_letters_beyond_ascii_arrive_whole(self):
        report, _ = self.talk("größe".encode() + b"\r", b"/bye\r", LC_ALL="C")
        self.assertEqual(report["turns"][0]["prefill_tokens"], self.tokens_of("größe"))

    def test_ctrl_c_at_the_prompt_ends_the_talk(self):
        report, shown = self.talk(b"the tide\r", self.CTRL_C, status=130)
        self.assertEqual(len(report["turns"]), 1)
        self.assertIn("the conversation ends here", shown)

    def test_ctrl_c_at_a_line_that_was_begun_clears_it(self):
        report, shown = self.talk(b"the tide\r", b"never se" + self.CTRL_C, b"and again\r", b"" + self.CTRL_C, status=130)
        self.assertEqual([turn["prefill_tokens"] for turn in report["turns"]],
                         [self.tokens_of("the tide"), self.tokens_of_later("and again")])  # fmt: skip
        self.assertIn("^C", shown)
        self.assertIn("the conversation ends here", shown)

    def test_the_second_ctrl_c_ends_the_talk(self):
        report, _ = self.talk(b"half a li" + self.CTRL_C, self.CTRL_C, status=130)
        self.assertNotIn("turns", report)

    def test_a_dumb_terminal_reads_plain_lines(self):
        report, shown = self.talk(b"the tide\n", b"/bye\n", TERM="dumb")
        self.assertEqual(len(report["turns"]), 1)
        self.assertNotIn("\x1b", shown)


if __name__ == "__main__":
    unittest.main()
