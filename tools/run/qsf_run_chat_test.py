#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf-run --interactive as a user runs it: over pipes, and at a terminal.

Usage: qsf_run_chat_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Chats with the bundled model, which has no chat template, and with the tiny one of
testdata/chat_model, converted by BIN_DIR/qsf-convert.
"""

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import tempfile
import termios
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
RUN = os.path.join(BIN_DIR, "qsf-run")
BUNDLED = os.path.join(SOURCE_DIR, "models", "tales-5M-4bit.qsf")
TIMEOUT_S = 60
# The tokens that would end an answer, never drawn: every answer is as long as it may be.
ENDLESS = ["--logit-bias", "261=-inf", "--logit-bias", "262=-inf", "--logit-bias", "263=-inf"]
TURN = re.compile(r"qsf-run: computed (\d+) tokens, .* kept (\d+); generated (\d+) tokens, "
                  r".*; context (\d+) tokens")


def setUpModule():
    global scratch, tiny
    scratch = tempfile.TemporaryDirectory()
    tiny = path("tiny.qsf")
    subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "f32",
                    os.path.join(SOURCE_DIR, "testdata", "chat_model"), tiny], check=True)


def tearDownModule():
    scratch.cleanup()


def path(name):
    return os.path.join(scratch.name, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)
    return path(name)


def environment():
    return {**os.environ, "XDG_STATE_HOME": path("state"), "TERM": "xterm", "LANG": "C.UTF-8"}


def chat(lines, *arguments):
    """Chats over pipes; returns exit code, stdout and stderr."""
    done = subprocess.run([RUN, "--interactive", *arguments], input="".join(lines).encode(),
                          capture_output=True, timeout=TIMEOUT_S, env=environment())
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Case(unittest.TestCase):
    def refused(self, expected_code, word, *arguments):
        code, out, err = chat([], *arguments)
        self.assertEqual((code, out), (expected_code, ""), err)
        self.assertRegex(err, r"\Aqsf-run: [^\n]+\n\Z")
        self.assertIn(word, err)


class Usage(Case):
    def test_options_that_do_not_go_together(self):
        self.refused(2, "exclude", "--prompt", "a")
        self.refused(2, "exclude", "--system", "a", "--system-file", "b")
        self.refused(2, "at least 1", "--max-tokens", "0")
        self.refused(1, "No such file", "--system-file", path("absent"))
        self.refused(1, "chatml", "--chat-template", "klingon")
        self.refused(1, "no Jinja template", "--chat-template", write("t.jinja", "Hello"))
        self.refused(1, "chat template: line 1", "--chat-template", write("t.jinja", "{% if %}"))
        self.refused(2, "logit-bias", tiny, "--logit-bias", "264=1")
        done = subprocess.run([RUN, tiny, "--prompt", "a", "--system", "b"], capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"need --interactive", done.stderr)


class Piped(Case):
    def test_only_answers_go_to_standard_output(self):
        code, out, err = chat(["One\n", "\n", "Two"], tiny, "--max-tokens", "5", "--seed", "1",
                              "--quiet", *ENDLESS)
        self.assertEqual((code, err), (0, ""))
        self.assertNotIn("> ", out)
        self.assertTrue(out.endswith("\n"))
        again = chat(["One\n", "Two\n"], tiny, "--max-tokens", "5", "--seed", "1", "--quiet",
                     *ENDLESS)[1]
        self.assertEqual(again, out)

    def test_forty_turns_with_a_template(self):
        lines = [f"Turn {10 + i}\n" for i in range(40)]
        system = "You know me."
        code, out, err = chat(lines, tiny, "--system", system, "--max-tokens", "8", "--verbose",
                              "--max-seq-len", "256", "--seed", "5", *ENDLESS)
        self.assertEqual(code, 0, err)
        turns = [tuple(map(int, turn)) for turn in TURN.findall(err)]
        self.assertEqual(len(turns), 40, err)
        dropping = [i for i, line in enumerate(self.after_each_turn(err)) if "dropped" in line]
        self.assertTrue(4 < len(dropping) < 20, dropping)
        # ChatML, a token for each byte: the answer's last token and its end, then the new messages.
        system_rows = len("S" "system\n" "You know me." "E\n")
        new_rows = 1 + len("E\n") + len("S" "user\n" "Turn 10" "E\n") + len("S" "assistant\n")
        for i, (computed, kept, generated, context) in enumerate(turns):
            self.assertEqual(generated, 8)
            self.assertEqual(context, computed + kept + 7)
            if i == 0:
                self.assertEqual((computed, kept), (system_rows + new_rows - 3, 0))
            elif i in dropping:
                self.assertGreaterEqual(kept, system_rows)
                self.assertLessEqual(computed + kept, 128)
            else:
                self.assertEqual((computed, kept), (new_rows, turns[i - 1][3]))

    def after_each_turn(self, err):
        """Returns what was told about each turn: the notices stand before its line of numbers."""
        return re.split(r"qsf-run: computed .*\n", err)[:40]

    def test_forty_turns_with_the_bundled_model(self):
        lines = [f"Tell me more about the {i}th king.\n" for i in range(40)]
        code, out, err = chat(lines, "--max-tokens", "40", "--max-seq-len", "512", "--verbose",
                              "--seed", "5", "--system", "There are many kings.")
        self.assertEqual(code, 0, err)
        turns = TURN.findall(err)
        self.assertEqual(len(turns), 40)
        self.assertIn("no chat template", err)
        self.assertIn("messages were dropped", err)
        self.assertTrue(all(int(context) <= 512 for _, _, _, context in turns))
        self.assertGreater(len(out), 2000)

    def test_save(self):
        saved = path("chat.json")
        script = ["/save " + saved + "\n", "Say \u00e9\n", '"""\n', " two\n", 'lines """\n',
                  "one \\\n", "more\n", "//slash\n", "/save " + saved + "\n",
                  "/save! " + saved + "\n", "/save\n", "/save " + path("absent") + "/x\n"]
        code, out, err = chat(script, tiny, "--system", "Be brief.", "--max-tokens", "4", *ENDLESS)
        self.assertEqual(code, 0)
        self.assertIn("saved 1 messages", err)
        self.assertIn("exists; /save! writes over it", err)
        self.assertIn("saved 9 messages", err)
        self.assertIn("name a file", err)
        self.assertIn(path("absent") + "/x: No such file", err)
        with open(saved, encoding="utf-8") as file:
            messages = json.load(file)["messages"]
        self.assertEqual([m["role"] for m in messages], ["system"] + ["user", "assistant"] * 4)
        self.assertEqual([m["content"] for m in messages if m["role"] != "assistant"],
                         ["Be brief.", "Say \u00e9", " two\nlines ", "one \nmore", "/slash"])
        self.assertTrue(all(m["content"] for m in messages))
        self.assertEqual([name for name in os.listdir(scratch.name) if ".tmp" in name], [])

    def test_a_saved_chat_goes_on(self):
        self.saved_chat_goes_on()

    def test_a_saved_chat_goes_on_under_attention_h2o(self):
        self.saved_chat_goes_on("--attention", "h2o", "--h2o-local", "5", "--h2o-heavy", "6",
                                "--h2o-chunk", "24")

    def test_a_saved_chat_goes_on_under_kv_policy_h2o(self):
        self.saved_chat_goes_on("--kv-policy", "h2o", "--kv-window", "20", "--kv-heavy", "12")

    def saved_chat_goes_on(self, *attention):
        session = path("chat.session")
        arguments = [tiny, "--max-tokens", "6", "--seed", "1", "--temperature", "0", "--verbose",
                     *attention, *ENDLESS]
        code, whole, err = chat(["One\n", "Two\n", "Three\n"], *arguments, "--system", "Be brief.")
        expected = TURN.findall(err)
        code, out, err = chat(["One\n", "Two\n"], *arguments, "--system", "Be brief.",
                              "--session-save", session)
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"session of \d+ tokens saved in .*chat\.session")
        code, rest, err = chat(["Three\n", "/stats\n"], *arguments, "--session-load", session,
                               "--session-save", session)
        self.assertEqual(code, 0, err)
        self.assertIn("goes on after 5 messages", err)
        self.assertEqual(out + "\n" + rest, whole)
        self.assertEqual(TURN.findall(err), expected[2:], "nothing of it was computed again")
        self.assertIn("7 messages; ", err)
        # Another system message; a text of no chat; a chat as a text.
        code, out, err = chat(["/system\n"], *arguments, "--session-load", session, "--system", "Go.")
        self.assertIn("Go.\n", err)
        code, out, err = chat(["/clear\n"], *arguments, "--session-load", session,
                              "--session-save", path("none.session"))
        self.assertEqual(code, 0, err)
        self.assertIn("nothing was said", err)
        self.assertFalse(os.path.exists(path("none.session")))
        plain = path("plain.session")
        subprocess.run([RUN, tiny, "--quiet", "--prompt", "Hi", "--max-tokens", "2",
                        "--session-save", plain, *attention], check=True, capture_output=True)
        self.refused(2, "no conversation", tiny, "--session-load", plain, *attention)
        done = subprocess.run([RUN, tiny, "--session-load", session, "--max-tokens", "3", *attention,
                               *ENDLESS], capture_output=True, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_save_replaces_regular_files_alone(self):
        pipe = path("pipe")
        os.mkfifo(pipe)
        code, out, err = chat(["/save! " + pipe + "\n"], tiny)
        self.assertIn("no regular file", err)
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_without_standard_input_there_is_no_message(self):
        done = subprocess.run([RUN, "--interactive", tiny, "--max-tokens", "3", *ENDLESS],
                              capture_output=True, timeout=TIMEOUT_S, env=environment(),
                              preexec_fn=lambda: os.close(0))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))

    def test_a_template_cannot_command_the_terminal(self):
        raising = write("raise.jinja", "{{ raise_exception('\u001b[31m and \u009b31m') }}")
        code, out, err = chat(["Hi\n"], tiny, "--chat-template", raising)
        self.assertEqual(code, 2)
        self.assertIn("[31m and \ufffd31m", err)
        self.assertNotIn("\x1b", err)

    def test_commands(self):
        code, out, err = chat(["/frobnicate\n", "/help\n", "/system\n", "/system New.\n", "/system\n",
                               "Hi\n", "/clear\n", "/stats\n", "/quit\n", "Not reached\n"],
                              tiny, "--max-tokens", "3", *ENDLESS)
        self.assertEqual(code, 0)
        self.assertIn("/frobnicate: no such command", err)
        self.assertIn("/save FILE", err)
        self.assertIn("(no system prompt)\nNew.\n", err)
        self.assertIn("1 messages; context", err)
        self.assertIn("1 answers of 3 tokens", err)

    def test_a_message_that_fails_does_not_end_the_chat(self):
        code, out, err = chat(["x" * 300 + "\n", "Hi\n"], tiny, "--max-seq-len", "128",
                              "--max-tokens", "4", *ENDLESS)
        self.assertEqual(code, 1, "over a pipe a failure shows in the exit code")
        self.assertIn("the context holds 128", err)
        self.assertTrue(out.strip())

    def test_an_answer_that_fills_the_context_says_so(self):
        code, out, err = chat(["Hi\n", "Ho\n"], tiny, "--max-seq-len", "96", *ENDLESS)
        self.assertEqual(code, 0)
        self.assertIn("the context is full", err)
        self.assertIn("the oldest 2 messages were dropped", err)

    def test_a_reader_that_leaves_is_no_error(self):
        process = subprocess.Popen([RUN, tiny, "--interactive", "--quiet", *ENDLESS],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())
        process.stdin.write(b"Hi\nHo\nHu\n")
        process.stdin.flush()
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        err = process.stderr.read()
        self.assertEqual((process.wait(timeout=TIMEOUT_S), err), (0, b""))
        process.stdin.close()
        process.stderr.close()


class Terminal:
    """A chat at a pseudo-terminal."""

    def __init__(self, *arguments, variables=None, command=(RUN, "--interactive")):
        self.shown = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(command[0], [*command, *arguments], {**environment(), **(variables or {})})

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read(self):
        """Reads what is shown next. Returns False when the program closed its end."""
        ready, _, _ = select.select([self.terminal], [], [], TIMEOUT_S)
        if not ready:
            raise AssertionError(f"nothing more after {self.shown!r}")
        try:
            self.shown += os.read(self.terminal, 4096).decode(errors="replace")
        except OSError:  # how a terminal says that the other end closed
            return False
        return True

    def wait_for(self, pattern):
        """Reads until `pattern` was shown; returns what stood before its end and drops that."""
        while not (found := re.search(pattern, self.shown)):
            if not self.read():
                raise AssertionError(f"no {pattern!r} in {self.shown!r}")
        before, self.shown = self.shown[:found.end()], self.shown[found.end():]
        return before

    def leave(self):
        """Leaves by Ctrl-D at the prompt; returns the exit code."""
        self.wait_for(PROMPT)
        self.type("\x04")
        while self.read():
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


PROMPT = r"> (\x1b\[[0-9;?]*[a-zA-Z])*$"


class AtATerminal(Case):
    def test_a_model_with_a_template_chats_without_being_asked_to(self):
        qsf = os.path.join(BIN_DIR, "qsf")
        for command in ((RUN,), (qsf, "run"), (qsf, "chat"), (qsf, "run", "--system", "Be brief.")):
            terminal = Terminal(tiny, "--no-history", *ENDLESS, command=command)
            self.assertIn("/help for help", terminal.wait_for("leaves"))
            self.assertEqual(terminal.leave(), 0, command)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        # The bundled model, whose answer of a thousand tokens leaves the time for it.
        terminal = Terminal(BUNDLED, "--verbose", "--no-history", "--logit-bias", "2=-inf")
        terminal.wait_for(PROMPT)
        terminal.type("Hi\r")
        terminal.wait_for(r"(?s)Hi\r\n.{20}")
        terminal.type("\x03")
        self.assertIn("interrupted", terminal.wait_for(r"context \d+ tokens"))
        terminal.wait_for(PROMPT)
        terminal.type("a line given up\x03")
        self.assertIn("leaves", terminal.wait_for(r"leaves\)"))
        terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        terminal.wait_for("2 messages; context")
        self.assertEqual(terminal.leave(), 0)

    def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            terminal = Terminal(tiny, "--quiet", "--no-history", *ENDLESS)
            line_by_line = termios.ECHO | termios.ICANON
            terminal.wait_for(PROMPT)
            self.assertEqual(termios.tcgetattr(terminal.terminal)[3] & line_by_line, 0)
            os.kill(terminal.pid, number)
            _, status = os.waitpid(terminal.pid, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), -number)
            self.assertEqual(termios.tcgetattr(terminal.terminal)[3] & line_by_line, line_by_line)
            terminal.wait_for(r"\x1b\[\?2004l")
            os.close(terminal.terminal)

    def test_editing_and_history(self):
        arguments = [tiny, "--max-tokens", "3", "--quiet", *ENDLESS]
        terminal = Terminal(*arguments)
        terminal.wait_for(PROMPT)
        # Typed wrong, then put right with arrow keys: "/system h\u00e9llo".
        terminal.type("/system h\u00e9lo\x1b[D\x1b[Dl\r")
        terminal.wait_for(PROMPT)
        terminal.type("/system\r")
        terminal.wait_for("h\u00e9llo\r\n")
        terminal.wait_for(PROMPT)
        terminal.type("\x1b[A\x1b[A!\r")  # recalled and changed
        terminal.wait_for(PROMPT)
        terminal.type("/system\r")
        terminal.wait_for("h\u00e9llo!\r\n")
        self.assertEqual(terminal.leave(), 0)

        history = os.path.join(path("state"), "qsf", "chat_history")
        self.assertEqual(stat.S_IMODE(os.stat(history).st_mode), 0o600)
        terminal = Terminal(*arguments)
        terminal.wait_for(PROMPT)
        terminal.type("\x1b[A\x1b[A\r")  # of the chat before
        terminal.wait_for(PROMPT)
        terminal.type("/system\r")
        terminal.wait_for("h\u00e9llo!\r\n")
        self.assertEqual(terminal.leave(), 0)

        before = os.path.getsize(history)
        terminal = Terminal(*arguments, "--no-history")
        terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        terminal.wait_for("answers of")
        self.assertEqual(terminal.leave(), 0)
        self.assertEqual(os.path.getsize(history), before)

    def test_a_home_that_is_missing_is_not_made(self):
        absent = {"HOME": path("no_home"), "XDG_STATE_HOME": ""}
        terminal = Terminal(tiny, "--quiet", variables=absent)
        self.assertEqual(terminal.leave(), 0)
        self.assertFalse(os.path.exists(path("no_home")))

    def test_a_byte_that_is_no_utf8_takes_no_other_with_it(self):
        terminal = Terminal(tiny, "--quiet", "--no-history", "--max-tokens", "3", *ENDLESS)
        terminal.wait_for(PROMPT)
        os.write(terminal.terminal, b"/system caf\xe9\r")
        terminal.wait_for(PROMPT)
        terminal.type("/system\r")
        terminal.wait_for("caf\ufffd\r\n")
        self.assertEqual(terminal.leave(), 0)

    def test_messages_of_several_lines(self):
        saved = path("terminal.json")
        terminal = Terminal(tiny, "--max-tokens", "3", "--quiet", "--no-history", *ENDLESS)
        terminal.wait_for(PROMPT)
        terminal.type("one \\\r")
        terminal.wait_for(r"\.\.\. $")
        terminal.type("two\r")
        terminal.wait_for(PROMPT)
        terminal.type('"""\r')
        terminal.wait_for(r"\.\.\. $")
        terminal.type('a\r')
        terminal.wait_for(r"\.\.\. $")
        terminal.type('b"""\r')
        terminal.wait_for(PROMPT)
        terminal.type("\x1b[200~pasted\rlines\r\x1b[201~")
        terminal.wait_for("lines")
        terminal.type("!\r")
        terminal.wait_for(PROMPT)
        terminal.type("/save " + saved + "\r")
        self.assertEqual(terminal.leave(), 0)
        with open(saved, encoding="utf-8") as file:
            messages = json.load(file)["messages"]
        self.assertEqual([m["content"] for m in messages if m["role"] == "user"],
                         ["one \ntwo", "a\nb", "pasted\nlines!"])

    def test_control_characters_of_an_answer_do_not_reach_the_terminal(self):
        with open(os.path.join(SOURCE_DIR, "testdata", "chat_model", "tokenizer.json"),
                  encoding="utf-8") as file:
            escape = json.load(file)["model"]["vocab"]["\u011b"]  # the byte ESC
        terminal = Terminal(tiny, "--quiet", "--no-history", "--max-tokens", "3",
                            "--logit-bias", f"{escape}=1000")
        terminal.wait_for(PROMPT)
        terminal.type("Hi\r")
        self.assertIn("\r\n\x1b[?2004l\ufffd\ufffd\ufffd\r\n", terminal.wait_for(r"\ufffd\r\n"))
        self.assertEqual(terminal.leave(), 0)

    def test_interrupt_while_the_prompt_is_computed(self):
        # One thread and a long message: computing it takes a while, or the answer has begun.
        terminal = Terminal(BUNDLED, "--threads", "1", "--no-history", "--system",
                            "a very long system prompt. " * 100, "--chat-template",
                            write("plain.jinja", "{% for m in messages %}{{ m['content'] }}"
                                  "{% endfor %}"), "--logit-bias", "2=-inf")
        terminal.wait_for(PROMPT)
        terminal.type("Hi\r")
        terminal.wait_for("Hi\r\n")
        terminal.type("\x03")
        terminal.wait_for(PROMPT)
        terminal.type("/stats\r")
        terminal.wait_for(r"\d messages; context")
        self.assertEqual(terminal.leave(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
