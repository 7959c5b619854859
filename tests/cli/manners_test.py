"""Manners: help that fits a screen, progress that suits where it goes, Ctrl-C that stops cleanly."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unittest

from program import (LLAMA, PROGRAM, TEXT, TIMEOUT_S, ProgramTest, environment, interrupt, kvtide, read_until, start,
                     wait_for_line)  # fmt: skip

COMMANDS = ("run", "chat", "ppl", "bench", "inspect", "tokenize", "logits", "state", "heads", "copytest", "recall", "table", "plan",
            "shard", "coreml", "validate", "fetch", "models")
CANCELLED, READER_GONE = 130, 141


class Help(ProgramTest):
    def test_help_fits_a_screen_and_names_every_command(self):
        text = self.assert_fine(kvtide("--help")).text
        self.assertLessEqual(len(text.splitlines()), 24)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command}  +[a-z]")
            self.assertRegex(self.assert_fine(kvtide(command, "--help")).text, rf"(?m)^  Example: kvtide {command} ")

    def test_help_begins_with_the_basics_and_ends_with_what_changes_no_result(self):
        text = self.assert_fine(kvtide("run", "--help")).text
        titles = re.findall(r"(?m)^([A-Z].*):$", text)
        self.assertEqual(titles[:2], ["Basics", "Keeping what was read"])
        self.assertRegex(titles[-2], "^Speed and scratch memory only")
        sections = dict(zip(titles, re.split(r"(?m)^[A-Z].*:$", text)[1:]))
        flags = {title: re.findall(r"(?m)^  (?:-\S+, |    )(--\S+)", body) for title, body in sections.items()}
        self.assertEqual(flags["Basics"][:2], ["--model", "--prompt"])
        self.assertIn("--kv-budget", flags["Basics"])
        self.assertLess(len(flags["Basics"]), 12)
        self.assertEqual(set(flags[titles[-2]]), {"--threads", "--prefill-chunk", "--kernels", "--no-mmap", "--no-cache", "--packed", "--packed-limit", "--packed-verify"})
        self.assertEqual(len(sum(flags.values(), [])), len(set(sum(flags.values(), []))))

    def test_help_and_version_may_be_words(self):
        self.assertEqual(kvtide("help", "run").text, kvtide("run", "--help").text)
        self.assertEqual(kvtide("version").text, kvtide("--version").text)
        self.assert_refused(kvtide("help", "rum"), 2, "'rum'", "did you mean run?")

    def test_help_of_a_command_lists_its_flags(self):
        for command, flag in [("run", "--repeat-penalty"), ("chat", "--system"), ("ppl", "--chunks"), ("bench", "--n-depth"),
                              ("inspect", "--json"), ("tokenize", "--no-special"), ("logits", "--all")]:  # fmt: skip
            text = self.assert_fine(kvtide(command, "--help")).text
            self.assertIn(flag, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 120)
        self.assertNotIn("--chunks", kvtide("run", "--help").text)

    def test_every_flag_is_in_the_documentation(self):
        documentation = (LLAMA.parents[3] / "docs" / "cli.md").read_text("utf-8")
        for command in COMMANDS:
            for flag in re.findall(r"--[a-z][a-z-]+", kvtide(command, "--help").text):
                self.assertIn(flag, documentation, f"kvtide {command}")

    def test_without_a_command_the_help_is_an_error(self):
        outcome = kvtide()
        self.assertEqual(outcome.status, 2)
        self.assertIn("Examples", outcome.text)

    def test_the_version_is_told(self):
        self.assertRegex(self.assert_fine(kvtide("--version")).text, r"^kvtide \d+\.\d+\.\d+\n")


class CtrlC(ProgramTest):
    """A text of 200,000 tokens keeps the tiny model busy for much longer than these tests wait."""

    def long_text(self):
        return self.file("long.txt", TEXT.read_bytes() * 2500)

    def test_in_prefill_it_stops_cleanly_and_says_what_was_kept(self):
        report = self.folder / "report.json"
        words = ("-f", self.long_text(), "-c", 300000, "--prefill-chunk", 64, "-t", 1, "--report", report)
        process = start("run", "-m", LLAMA, *words)
        wait_for_line(process, b"parameters")
        time.sleep(0.2)
        outcome = interrupt(process)
        self.assertEqual((outcome.status, outcome.out), (CANCELLED, b""), outcome.err)
        kept = re.search(r"Ctrl-C, stopped after (\d+) of 200000 tokens.* ([\d,]+) tokens are read and held", outcome.err)
        self.assertIsNotNone(kept, outcome.err)
        self.assertEqual(int(kept[1]), int(kept[2].replace(",", "")))
        self.assertGreater(int(kept[1]), 0)
        self.assertIn("they are gone now: the same command with --save-state FILE keeps them", outcome.err)
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["long.txt"])

    def test_while_writing_it_keeps_the_answer_and_the_report(self):
        report = self.folder / "report.json"
        # Greedy, this model never ends that text.
        process = start("run", "-m", LLAMA, "-p", "the tide", "-n", -1, "-c", 1000000, "-t", 1, "--report", report)
        first = read_until(process, process.stdout, len, "the first letter of the answer")
        outcome = interrupt(process)
        self.assertEqual(outcome.status, CANCELLED, outcome.err)
        written = json.loads(report.read_text("utf-8"))
        self.assertEqual(written["stop_reason"], "cancelled")
        self.assertEqual((first + outcome.out).decode("utf-8"), written["text"])
        self.assertIn("Ctrl-C", outcome.err.splitlines()[-1])

    def test_in_logits_it_leaves_no_file(self):
        out = self.folder / "logits.npy"
        words = ("-f", self.long_text(), "-c", 300000, "--prefill-chunk", 64, "-t", 1, "--all", "--out", out)
        process = start("logits", "-m", LLAMA, *words)
        wait_for_line(process, b"warning")  # the text is longer than the model was trained for
        time.sleep(0.2)
        outcome = interrupt(process)
        self.assertEqual(outcome.status, CANCELLED, outcome.err)
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["long.txt"])

    def test_a_second_one_ends_the_program_at_once(self):
        # One chunk holds the whole text: the first Ctrl-C is heard only behind it.
        words = ("-f", self.long_text(), "-c", 300000, "--prefill-chunk", 65536, "-t", 1)
        process = start("run", "-m", LLAMA, *words)
        wait_for_line(process, b"parameters")
        time.sleep(0.2)
        process.send_signal(2)
        time.sleep(0.2)
        outcome = interrupt(process)
        self.assertEqual((outcome.status, outcome.out), (-2, b""))


class Progress(ProgramTest):
    def on_a_terminal(self, copies, columns=80, **more):
        """What a terminal on stderr receives while so many copies of 80 tokens are read."""
        text = self.file("text.txt", TEXT.read_bytes() * copies)
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        words = ("run", "-m", LLAMA, "-f", text, "-c", "60000", "-n", "0", "-t", "1", "--prefill-chunk", "64")
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=follower, env=environment(TERM="xterm") | more)  # fmt: skip
        os.close(follower)
        received, end = b"", time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            ready, _, _ = select.select([leader], [], [], 1)
            try:
                piece = os.read(leader, 65536) if ready else b""
            except OSError:  # the terminal's other end was closed
                break
            received += piece
            if not piece and process.poll() is not None:
                break
        os.close(leader)
        self.assertEqual(process.wait(TIMEOUT_S), 0, received)
        return received.decode("utf-8")

    def test_a_terminal_of_80_columns_sees_percent_and_time_left_first_and_a_bar_last(self):
        text = self.on_a_terminal(300)
        lines = re.findall(r"\r\x1b\[K(reading [^\r]*)", text)
        self.assertGreater(len(lines), 1)
        for line in lines:
            self.assertRegex(line, r"^reading \d+%, (\d+ s|\d+:\d\d min|\?) left, [\d,]+/24,000 tokens, KV [\d.]+ .iB \[[#.]{6,20}\]$")
            self.assertLess(len(line), 80)
        # At most ten updates per second: reading takes well below a minute.
        self.assertLess(len(lines), 600)
        self.assertNotIn("\x1b", text.split("wrote")[-1])

    def test_a_narrow_terminal_loses_the_bar_and_the_end_only(self):
        lines = re.findall(r"\r\x1b\[K(reading [^\r]*)", self.on_a_terminal(300, columns=40))
        self.assertGreater(len(lines), 1)
        for line in lines:
            self.assertLess(len(line), 40)
            self.assertRegex(line, r"^reading \d+%, .* left")

    def test_no_color_and_dumb_terminals_see_plain_lines(self):
        for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\x1b", self.on_a_terminal(50, **more))

    def test_a_reader_who_goes_away_ends_the_program_quietly(self):
        for words in (("inspect", LLAMA, "--json"), ("run", "-m", LLAMA, "-p", "the tide", "-n", -1, "-c", 1000000)):
            leader, follower = os.pipe()
            os.close(leader)
            done = subprocess.run([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=follower,
                                  stderr=subprocess.PIPE, env=environment(), timeout=TIMEOUT_S, check=False)  # fmt: skip
            os.close(follower)
            self.assertEqual(done.returncode, READER_GONE)
            self.assertNotIn(b"kvtide: ", done.stderr)

    def test_what_was_read_is_saved_though_nobody_reads_the_answer(self):
        leader, follower = os.pipe()
        os.close(leader)
        words = ("run", "-m", LLAMA, "-f", TEXT, "-n", "5", "--save-state", self.folder / "text.kv")
        done = subprocess.run([PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=follower, env=environment(),
                              stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False)  # fmt: skip
        os.close(follower)
        self.assertEqual(done.returncode, READER_GONE)
        self.assertGreaterEqual(self.assert_fine(kvtide("state", "info", self.folder / "text.kv", "--json")).json["position"], 80)

    def test_figures_of_nothing_have_no_speed(self):
        err = self.assert_fine(kvtide("run", "-m", LLAMA, "-p", "the tide", "-n", 0)).err
        self.assertRegex(err, r"(?m)^wrote 0 tokens; as many as")
        self.assertNotRegex(err, r"wrote 0 tokens.*tok/s")

    def test_a_file_sees_plain_lines(self):
        outcome = self.assert_fine(kvtide("run", "-m", LLAMA, "-f", TEXT, "-n", 3))
        self.assertNotIn("\x1b", outcome.err)
        self.assertNotIn("\r", outcome.err)


if __name__ == "__main__":
    unittest.main()
