#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The web page in headless Chromium, against a server with scripted answers or a real one.

Usage: page_browser_test.py [--server URL] [--screenshots DIR] [unittest arguments]

Needs chromium and chromedriver, and exits with 77 without them. With --server only the tests that
hold for any model run.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import unittest

PAGE_DIR = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(PAGE_DIR, "testing"))

import browser  # noqa: E402
import fake_server  # noqa: E402
from fake_server import RICH_TEXT, answer_events, chunk  # noqa: E402
from page_case import MARKUP, PageCase  # noqa: E402

def paused(text, event, rest=" The rest."):
    """The events of an answer that waits in its middle for `event`."""
    first, second = answer_events(text)[:-3], answer_events(rest)[1:]
    return [*first, event, *second]


class ScriptedCase(PageCase):
    def setUp(self):
        self.server = fake_server.FakeServer()
        self.addCleanup(self.server.close)
        self.begin(self.server.url)

    def tearDown(self):
        self.end()

    def last_request(self):
        return self.server.requests[-1]

    def answer(self, *texts):
        self.server.answers += [answer_events(text) for text in texts]


class Conversation(ScriptedCase):
    def test_question_and_answer(self):
        self.assertEqual(self.texts("#empty:not([hidden]) h2"), ["Ask the model"])
        self.server.answers = [answer_events("Hello *you*.", "Let me think.")]
        self.ask("Hi there")
        self.wait_end()
        self.assertEqual(self.last_request(), {
            "model": "SmolLM2-135M", "messages": [{"role": "user", "content": "Hi there"}], "stream": True,
            "stream_options": {"include_usage": True}})
        self.assertEqual(self.answers(), ["Hello you."])
        self.assertEqual(self.texts(".message-assistant em"), ["you"])
        self.assertEqual(self.texts(".reasoning-text"), ["Let me think."])
        self.assertFalse(self.find(".reasoning").property("open"))
        self.assertIn("42 tokens", self.texts(".figures")[0])
        self.assertEqual(self.texts("#title"), ["Hi there"])
        self.assertEqual(self.texts("#conversation-list a[aria-current]"), ["Hi there"])
        self.answer("Again.")
        self.ask("More")
        self.wait_end(2)
        self.assertEqual(self.last_request()["messages"], [
            {"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello *you*."},
            {"role": "user", "content": "More"}])

    def test_text_appears_while_it_is_written(self):
        event = threading.Event()
        self.server.answers = [paused("First *part*.", event)]
        self.ask("Hi")
        self.wait_texts(".message-assistant .message-body > .markdown", ["First part."])
        self.assertEqual(self.find(".message-assistant").command("GET", "/attribute/aria-busy"), "true")
        self.assertTrue(self.find("#send").property("hidden"))
        # A question can be typed meanwhile; it is not sent.
        self.ask("Next")
        self.assertEqual(self.find("#question").property("value"), "Next")
        event.set()
        self.wait_end()
        self.assertEqual(self.answers(), ["First part. The rest."])
        self.assertEqual(len(self.server.requests), 1)
        self.assertEqual(self.find("#question").property("value"), "Next")

    def test_bytes_cut_anywhere(self):
        stream = b"".join(answer_events("Gr\u00fc\u00dfe \U0001f600\n\n- eins\n- zwei"))
        self.server.answers = [[stream[at:at + 1] for at in range(len(stream))]]
        self.ask("Hi")
        self.wait_end()
        self.assertEqual(self.answers(), ["Gr\u00fc\u00dfe \U0001f600einszwei"])

    def stop(self, action):
        event = threading.Event()
        self.addCleanup(event.set)
        self.server.answers = [paused("Begun.", event)]
        self.ask("Hi")
        self.wait_texts(".message-assistant .message-body > .markdown", ["Begun."])
        action()
        self.wait_end()
        self.assertIn("Stopped.", self.texts(".figures")[0])
        self.assertEqual(self.answers(), ["Begun."])
        self.browser.wait(lambda: self.server.n_aborted == 1, "the end of the request")
        self.ask("Go on")
        self.wait_end(2)
        self.assertEqual(self.last_request()["messages"][1], {"role": "assistant", "content": "Begun."})

    def test_stop_by_button(self):
        self.stop(lambda: self.find("#stop").click())

    def test_stop_by_escape(self):
        self.stop(lambda: self.browser.press("Escape"))

    def test_edit_makes_a_version(self):
        self.answer("One.", "Two.", "Three.")
        self.ask("First")
        self.wait_end()
        self.ask("Second")
        self.wait_end(2)
        self.find(".message-user [aria-label=Edit]").click()
        self.browser.press("Control", "a")
        self.browser.type("Changed")
        self.browser.press("Enter")
        self.wait_end(1)
        self.assertEqual(self.last_request()["messages"], [{"role": "user", "content": "Changed"}])
        self.assertEqual(self.answers(), ["Three."])
        self.assertEqual(self.texts(".versions > span"), ["2 of 2"])
        # Nothing that was written before is lost.
        self.find(".versions [aria-label='Previous version']").click()
        self.wait_texts(".message-user .message-body", ["First", "Second"])
        self.assertEqual(self.answers(), ["One.", "Two."])
        self.reload()
        self.wait_texts(".message-user .message-body", ["First", "Second"])

    def test_escape_leaves_a_question_as_it_was(self):
        self.ask("First")
        self.wait_end()
        self.find(".message-user [aria-label=Edit]").click()
        self.browser.type(" changed")
        self.browser.press("Escape")
        self.assertEqual(self.texts(".message-user .message-body"), ["First"])
        self.assertEqual(self.focused(), "Edit")

    def test_regenerate_makes_a_version(self):
        self.answer("One.", "Two.")
        self.ask("First")
        self.wait_end()
        self.find("[aria-label=Regenerate]").click()
        self.browser.wait(lambda: len(self.server.requests) == 2, "a second request")
        self.wait_end()
        self.assertEqual(self.answers(), ["Two."])
        self.assertEqual(self.server.requests[0], self.server.requests[1])
        self.find(".versions [aria-label='Previous version']").click()
        self.wait_texts(".message-assistant .message-body > .markdown", ["One."])

    def test_conversation_goes_on_while_another_is_shown(self):
        event = threading.Event()
        self.server.answers = [paused("Slow.", event), answer_events("Quick.")]
        self.ask("First")
        self.wait_texts(".message-assistant .message-body > .markdown", ["Slow."])
        self.find("#new-conversation").click()
        self.wait_texts(".message", [])
        self.ask("Second")
        self.wait_end()
        self.assertEqual(self.answers(), ["Quick."])
        self.assertEqual(self.count(".writing-mark"), 1)
        event.set()
        self.browser.wait(lambda: self.count(".writing-mark") == 0, "the other answer")
        self.browser.back()
        self.wait_texts(".message", [])
        self.browser.back()
        self.wait_texts(".message-assistant .message-body > .markdown", ["Slow. The rest."])


class Kept(ScriptedCase):
    def test_reload_keeps_conversation_and_draft(self):
        self.answer("An *answer*.")
        self.ask("A question")
        self.wait_end()
        self.find("#question").click()
        self.browser.type("half a sent")
        self.reload()
        self.wait_texts(".message-user .message-body", ["A question"])
        self.assertEqual(self.answers(), ["An answer."])
        self.assertEqual(self.find("#question").property("value"), "half a sent")
        self.find("#new-conversation").click()
        self.wait_texts(".message", [])
        self.assertEqual(self.find("#question").property("value"), "")
        self.find("#question").click()
        self.browser.type("another")
        self.reload()
        self.assertEqual(self.find("#question").property("value"), "another")

    def test_reload_keeps_an_edit(self):
        self.ask("First")
        self.wait_end()
        self.find(".message-user [aria-label=Edit]").click()
        self.browser.press("End")
        self.browser.type(" changed")
        self.reload()
        self.assertEqual(self.find(".edit-text").property("value"), "First changed")

    def test_reload_keeps_what_was_written_of_an_answer(self):
        event = threading.Event()
        self.addCleanup(event.set)
        self.server.answers = [paused("Half of it.", event)]
        self.ask("Hi")
        self.wait_texts(".message-assistant .message-body > .markdown", ["Half of it."])
        self.reload()
        self.wait_end()
        self.assertEqual(self.answers(), ["Half of it."])

    def test_rename_delete_undo(self):
        self.ask("First")
        self.wait_end()
        self.find("#conversation-menu summary").click()
        self.find("#rename").click()
        self.browser.type("My *title*")
        self.browser.press("Enter")
        self.wait_texts("#conversation-list a", ["My *title*"])
        self.assertEqual(self.texts("#title"), ["My *title*"])
        self.find("#conversation-menu summary").click()
        self.find("#delete").click()
        self.wait_texts("#conversation-list a", [])
        self.wait_texts(".message", [])
        self.find(".notice .text-button").click()
        self.wait_texts("#conversation-list a", ["My *title*"])
        self.wait_texts(".message-user .message-body", ["First"])
        self.reload()
        self.wait_texts("#conversation-list a", ["My *title*"])

    def exported(self, *buttons):
        """Clicks buttons that begin a download. Returns its name and content."""
        for name in os.listdir(self.browser.downloads):
            os.remove(os.path.join(self.browser.downloads, name))
        for selector in buttons:
            self.find(selector).click()

        def complete():
            return [name for name in os.listdir(self.browser.downloads) if name.endswith((".json", ".md"))]

        name = self.browser.wait(complete, "a download")[0]
        with open(os.path.join(self.browser.downloads, name), encoding="utf-8") as file:
            return name, file.read()

    def test_export_and_import(self):
        self.answer(RICH_TEXT)
        self.ask("How does it work?")
        self.wait_end()
        name, text = self.exported("#conversation-menu summary", "#export-markdown")
        self.assertEqual(name, "How-does-it-work.md")
        self.assertEqual(text, "# How does it work?\n\n## User\n\nHow does it work?\n\n## Assistant (SmolLM2-135M)\n\n"
                         + RICH_TEXT + "\n")
        name, text = self.exported("#conversation-menu summary", "#export-json")
        one = json.loads(text)["conversations"][0]
        self.assertEqual([(message["role"], message["content"]) for message in one["messages"]],
                         [("user", "How does it work?"), ("assistant", RICH_TEXT)])
        _, every = self.exported("#export-all")
        self.assertEqual(json.loads(every), json.loads(text))
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            self.check_violations()
            other = fake_server.FakeServer()  # another origin, with nothing stored
            self.addCleanup(other.close)
            self.browser.requested_urls()
            self.url = other.url
            self.open()
            self.assertEqual(self.texts("#conversation-list a"), [])
            self.browser.run("document.getElementById('import-file').hidden = false")
            self.find("#import-file").type(file.name)
            self.wait_texts("#conversation-list a", ["How does it work?"])
            self.wait_texts(".message-user .message-body", ["How does it work?"])

    def test_import_of_something_else(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            file.write('{"format": "other"}')
            file.flush()
            self.browser.run("document.getElementById('import-file').hidden = false")
            self.find("#import-file").type(file.name)
            self.find(".notice-error")
        self.assertIn("not an export of this page", self.texts(".notice-error")[0])

    def test_another_tab_sees_the_list(self):
        first = self.browser.command("GET", "/window")
        second = self.browser.command("POST", "/window/new", {"type": "tab"})["handle"]
        try:
            self.browser.command("POST", "/window", {"handle": second})
            self.open()
            self.ask("From the other tab")
            self.wait_end()
        finally:
            self.browser.command("DELETE", "/window")
            self.browser.command("POST", "/window", {"handle": first})
        self.wait_texts("#conversation-list a", ["From the other tab"])


class Safety(ScriptedCase):
    def setUp(self):
        super().setUp()
        self.server.models = ["m" + MARKUP, "tales-5M"]
        self.reload()

    def test_markup_stays_text(self):
        text = f"{MARKUP}\n\n```{MARKUP.replace(' ', '')}\n{MARKUP}\n```\n\n[x](javascript:window.attacked=1) {MARKUP}"
        self.server.answers = [answer_events(text, MARKUP)]
        self.server.status = {**fake_server.STATUS, "state": MARKUP}
        self.ask(MARKUP)
        self.wait_end()
        self.assertEqual(self.texts(".message-user .message-body"), [MARKUP])
        self.assertIn(MARKUP, self.answers()[0])
        self.assertEqual(self.texts(".message-assistant code"), [MARKUP])
        self.assertEqual(self.texts(".message-name"), ["m" + MARKUP])
        self.assertEqual(self.texts(".code-language"), [MARKUP.replace(" ", "")])
        self.assertEqual(self.count(".message a"), 0)
        self.wait_texts("#status-state", [MARKUP])
        self.server.answers = [(400, {"error": {"message": MARKUP}}, [])]
        self.may_log = ["400 (Bad Request)"]
        self.ask("More")
        self.wait_end(2)
        self.assertEqual(self.texts(".message-error:not([hidden])"), [MARKUP])
        self.reload()
        self.wait_end(2)
        self.assertEqual(self.count("#layout :is(img, script, svg:not(.icon), iframe, style, [onerror], [onload])"), 0)
        self.find("#conversation-menu summary").click()
        self.find("#rename").click()
        self.browser.type(MARKUP)
        self.browser.press("Enter")
        self.wait_texts("#conversation-list a", [MARKUP])
        self.assertEqual(self.texts("#title"), [MARKUP])

    def test_images_are_links_and_load_nothing(self):
        self.answer("![a picture](https://example.com/track.png) <https://example.com> [no](javascript:1)")
        self.ask("Hi")
        self.wait_end()
        links = self.browser.run("return Array.from(document.querySelectorAll('.message a'), "
                                 "(one) => [one.href, one.rel, one.textContent])")
        self.assertEqual(links, [["https://example.com/track.png", "noopener noreferrer nofollow", "a picture"],
                                 ["https://example.com/", "noopener noreferrer nofollow", "https://example.com"]])

    def test_policy_forbids_what_the_page_does_not_do(self):
        for script in ("document.body.innerHTML = '<b>x</b>'", "document.write('x')",
                       "const one = document.createElement('script'); one.text = '1'"):
            refused = self.browser.run(f"try {{ {script}; return false }} catch {{ return true }}")
            self.assertTrue(refused, script)
        self.assertEqual(self.browser.run(
            "try { await fetch('http://127.0.0.2:1/'); return 'sent' } catch (error) { return error.name }"), "TypeError")
        self.assertTrue(any("connect-src" in text for text in self.browser.run("return window.violations")))
        self.may_log = ["Content Security Policy", "Content-Security-Policy", "Refused to connect", "TrustedHTML",
                        "TrustedScript"]
        self.browser.run("window.violations = []")


class Failures(ScriptedCase):
    def ask_and_fail(self, answer, *log):
        self.may_log += log
        self.server.answers.append(answer)
        n_before = self.count(".message-assistant")
        self.ask("My text")
        self.wait_end(n_before + 1)
        self.assertEqual(self.texts(".message-user .message-body")[-1], "My text")
        return self.texts(".message-error")[-1]

    def test_errors_are_shown_and_the_text_stays(self):
        message = "This model's maximum context length is 512 tokens."
        self.assertEqual(self.ask_and_fail((400, {"error": {"message": message}}, []), "400"), message)
        self.assertEqual(self.ask_and_fail((404, {"error": "no such model"}, []), "404"), "no such model")
        self.assertEqual(self.ask_and_fail((429, {"error": {"message": "Full."}}, [("Retry-After", "7")]), "429"), "Full.")
        self.assertIn("7 s", self.texts(".notice")[-1])
        self.assertIn("status 502", self.ask_and_fail((502, [], []), "502"))
        error = b'data: {"error": {"message": "The disk is full."}}\n\n'
        self.assertEqual(self.ask_and_fail([chunk({"content": "Part"}), error]), "The disk is full.")
        self.assertEqual(self.answers()[-1], "Part")
        self.assertIn("before the answer was complete", self.ask_and_fail([chunk({"content": "Cut"})]))
        self.assertEqual(self.answers()[-1], "Cut")
        self.assertIn("not JSON", self.ask_and_fail([b"data: {\n\n"]))
        self.reload()
        self.wait_end(7)
        self.assertEqual(self.texts(".message-user .message-body"), ["My text"] * 7)
        self.answer("Now.")
        self.find(".message:last-child .message-foot .text-button").click()
        self.browser.wait(lambda: self.answers()[-1] == "Now.", "a new answer")

    def test_length_is_named(self):
        self.server.answers = [answer_events("Text", finish_reason="length")]
        self.ask("Hi")
        self.wait_end()
        self.assertIn("maximum of tokens", self.texts(".figures")[0])

    def test_odd_chunks_are_no_error(self):
        odd = [b": comment\n\n", b"data: null\n\n", b"data: 1\n\n", b'data: {"choices": []}\n\n', chunk({"content": None}),
               b'data: {"choices": [null]}\n\n', b'data: {"choices": [{"delta": {"content": 5}}]}\n\n']
        self.server.answers = [[*odd, *answer_events("Text")]]
        self.ask("Hi")
        self.wait_end()
        self.assertEqual((self.answers(), self.texts(".message-error")), (["Text"], [""]))

    def test_server_that_is_gone(self):
        self.may_log = ["ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET"]
        self.server.close()
        self.ask("My text")
        self.wait_end()
        self.assertIn("cannot be reached", self.texts(".message-error")[0])
        self.assertEqual(self.texts(".message-user .message-body"), ["My text"])
        self.wait_texts("#status-state", ["Not reachable"])

    def test_key(self):
        self.server.key = "secret"
        self.may_log = ["401"]
        self.browser.reload()
        self.find(".notice-error .text-button").click()
        self.assertEqual(self.focused(), "setting-key")
        self.browser.type("secret")
        self.browser.press("Enter")
        self.browser.wait(lambda: self.find("#model").property("value") == "SmolLM2-135M", "the models")
        self.ask("Hi")
        self.wait_end()
        self.assertEqual(self.answers(), ["An answer."])
        self.wait_texts("#status-state", ["Ready"])
        stored = self.browser.run("return [JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
        self.assertNotIn("secret", stored[0])
        self.assertIn("secret", stored[1])


class Settings(ScriptedCase):
    def fill(self, **fields):
        self.find("#open-settings").click()
        for name, value in fields.items():
            self.browser.run("document.getElementById(arguments[0]).value = arguments[1]", "setting-" + name, value)
        self.find("#settings-form .primary-button").click()

    def test_values_are_sent_and_kept(self):
        self.fill(system="Be brief.", temperature="0.5", top_p=".9", top_k="40", min_p="0.05", max_tokens="100", seed="7",
                  stop="END\n\\n\\n")
        expected = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 100, "seed": 7,
                    "stop": ["END", "\n\n"]}
        self.ask("Hi")
        self.wait_end()
        body = self.last_request()
        self.assertEqual({name: body[name] for name in expected}, expected)
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.reload()
        self.find("#new-conversation").click()
        self.wait_texts(".message", [])
        self.ask("Again")
        self.wait_end()
        self.assertEqual({name: self.last_request()[name] for name in expected}, expected)
        self.find("#open-settings").click()
        self.assertEqual(self.find("#setting-stop").property("value"), "END\n\\n\\n")
        self.find("#reset-settings").click()
        self.find("#settings-form .primary-button").click()
        self.ask("And again")
        self.wait_end(2)
        self.assertEqual(set(self.last_request()), {"model", "messages", "stream", "stream_options"})

    def test_values_out_of_range_are_named(self):
        self.fill(temperature="2.1", top_p="x", top_k="1.5", min_p="-1", max_tokens="0", seed="1e3", stop="a\nb\nc\nd\ne")
        self.assertTrue(self.find("#settings").property("open"))
        errors = self.texts(".field-error")
        self.assertEqual([text != "" for text in errors], [True] * 7, errors)
        self.assertEqual(self.focused(), "setting-temperature")
        self.browser.press("Escape")
        self.ask("Hi")
        self.wait_end()
        self.assertNotIn("temperature", self.last_request())

    def test_model_choice(self):
        self.find("#model").type("tales")
        self.ask("Hi")
        self.wait_end()
        self.assertEqual(self.last_request()["model"], "tales-5M")
        self.reload()
        self.assertEqual(self.find("#model").property("value"), "tales-5M")
        self.server.models = ["other", "third"]
        self.reload()
        self.wait_texts("#model option", ["other", "third", "tales-5M (not offered)"])

    def test_live_panel(self):
        self.wait_texts("#status-state", ["Ready"])
        figures = dict(zip(self.texts("#status dt"), self.texts("#status dd")))
        self.assertEqual(figures, {
            "Memory": "1.17 GiB of 2.00 GiB", "Planned": "1.76 GiB", "Weights in memory": "25 %", "From disk": "850 MB/s",
            "Speed": "12.4 tokens/s", "Running": "3, 1 parked", "Queue": "2, 1,204 tokens",
            "KV pages": "120 of 400, 32 shared"})
        self.assertEqual(self.find(".bar").command("GET", "/attribute/aria-valuetext"), "1.17 GiB of 2.00 GiB")
        bar = self.browser.run("const part = (name) => document.querySelector(name).getBoundingClientRect().width;"
                               "return part('.bar-resident') / part('.bar')")
        self.assertAlmostEqual(bar, 1200 / 2048, delta=0.03)
        bad = {"state": "stuck", "memory": {"budget_bytes": "x", "resident_bytes": -1}, "queue": 5, "kv": {"pages": -1}}
        for status, state in ((None, "Unknown"), (bad, "Stuck"), ([], "Unknown")):
            self.server.status = status
            self.wait_texts("#status-state", [state])
            self.assertEqual(self.texts("#status dd")[0], "0 B of 0 B")


class Access(ScriptedCase):
    def tab_to(self, name):
        for _ in range(40):
            if self.focused() == name:
                return
            self.browser.press("Tab")
        self.fail(f"40 tabs do not lead to {name}")

    def test_keyboard_alone(self):
        self.answer("One.", "Two.")
        self.browser.run("document.activeElement.blur()")
        self.browser.press("Tab")
        self.assertEqual(self.focused(), "Skip to the message field")
        self.browser.press("Enter")
        self.assertEqual(self.focused(), "question")
        self.browser.type("line 1")
        self.browser.press("Shift", "Enter")
        self.browser.type("line 2")
        self.browser.press("Enter")
        self.wait_end()
        self.assertEqual(self.last_request()["messages"][0]["content"], "line 1\nline 2")
        self.assertEqual(self.focused(), "question")
        self.browser.run("document.querySelector('.skip-link').focus()")
        self.tab_to("new-conversation")
        self.tab_to("line 1")
        self.tab_to("model")
        self.tab_to("open-settings")
        self.browser.press("Enter")
        self.browser.wait(lambda: self.focused() == "setting-system", "the settings")
        self.browser.press("Escape")
        self.browser.wait(lambda: self.focused() == "open-settings", "the button again")
        self.browser.press("Tab")
        self.browser.press("Enter")
        self.browser.press("Tab")
        self.assertEqual(self.focused(), "rename")
        self.browser.press("Escape")
        self.assertFalse(self.find("#conversation-menu").property("open"))
        self.tab_to("Regenerate")
        outline = self.browser.run("return getComputedStyle(document.activeElement).outlineStyle")
        self.assertEqual(outline, "solid")
        self.browser.press("Enter")
        self.wait_texts(".message-assistant .message-body > .markdown", ["Two."])
        self.wait_end()
        self.tab_to("question")

    def test_landmarks_and_names(self):
        self.answer(RICH_TEXT)
        self.ask("Hi")
        self.wait_end()
        self.assertEqual([self.count(name) for name in ("main", "nav[aria-label]", "h1", "main > header", "main > footer")],
                         [1] * 5)
        tree = self.browser.cdp("Accessibility.getFullAXTree", {})["nodes"]
        roles = {}
        for node in tree:
            if not node.get("ignored"):
                roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
        for role in ("main", "navigation", "article", "status", "textbox", "combobox", "meter"):
            self.assertIn(role, roles)
        for role in ("button", "link", "textbox", "combobox", "meter", "article", "DisclosureTriangle"):
            self.assertNotIn("", roles.get(role, []), role)

    def test_live_region_says_blocks(self):
        text = "The first paragraph is here.\n\nThe second one follows.\n\nAnd the last."
        self.server.answers = [answer_events(text, size=1)]
        self.ask("Hi")
        self.wait_end()
        self.assertEqual(self.texts("#announcements p"), [
            "The answer begins.", "The first paragraph is here.", "The second one follows.", "And the last.",
            "End of the answer."])
        self.assertEqual(self.find("#announcements").command("GET", "/attribute/aria-live"), "polite")

    def test_scrolling_back_stays(self):
        event = threading.Event()
        self.server.answers = [paused("line\n\n" * 60, event, "more\n\n" * 20)]
        self.ask("Hi")
        self.browser.wait(lambda: self.count(".message-assistant p") > 55, "lines")
        self.browser.run("document.getElementById('scroller').scrollTop = 0")
        self.browser.wait(lambda: not self.find("#jump").property("hidden"), "the button to the end")
        event.set()
        self.wait_end()
        self.assertEqual(self.find("#scroller").property("scrollTop"), 0)
        self.find("#jump").click()
        self.assertGreater(self.find("#scroller").property("scrollTop"), 500)

    def test_copy(self):
        self.browser.cdp("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        self.answer("Text\n\n```sh\nls -l\n```")
        self.ask("Hi")
        self.wait_end()
        read = "return navigator.clipboard.readText()"
        self.find("[aria-label='Copy code']").click()
        self.browser.wait(lambda: self.browser.run(read) == "ls -l", "the code on the clipboard")
        self.find(".message-assistant [aria-label=Copy]").click()
        self.browser.wait(lambda: self.browser.run(read) == "Text\n\n```sh\nls -l\n```", "the answer on the clipboard")
        # Where the page has no secure address, the interface is missing.
        self.browser.run("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
        self.find("[aria-label='Copy code']").click()
        self.browser.wait(lambda: "Copied" in self.texts("#announcements p")[-1], "the copy")
        self.browser.run("delete navigator.clipboard")
        self.assertEqual(self.browser.run(read), "ls -l")


class Units(ScriptedCase):
    def test_modules(self):
        for name in ("unit_tests.html", "unit_tests.js"):
            with open(os.path.join(PAGE_DIR, "testing", name), "rb") as file:
                kind = "text/html" if name.endswith("html") else "text/javascript"
                self.server.files["/" + name if name.endswith("html") else "/testing/" + name] = (file.read(), kind)
        self.browser.open(self.url + "unit_tests.html")
        browser.TIMEOUT_S, before = 120, browser.TIMEOUT_S
        self.addCleanup(setattr, browser, "TIMEOUT_S", before)
        results = self.browser.wait(lambda: self.browser.run("return window.results ?? null"), "the unit tests")
        self.assertGreater(len(results), 40)
        for result in results:
            with self.subTest(result["name"]):
                self.assertEqual(result["error"], "")


class Looks(ScriptedCase):
    """Shows the page's states at one width, and writes pictures of them to look at."""

    ground = "rgb(255, 255, 255)"

    def picture(self, name):
        if OPTIONS.screenshots:
            scheme = "dark" if self.dark else "light"
            self.browser.screenshot(os.path.join(OPTIONS.screenshots, f"{self.width}-{scheme}-{name}.png"))

    def contrast(self, selector):
        """The contrast of an element's text with what is behind it (WCAG 2.2)."""
        return self.browser.run("""
          const rgb = (color) => color.match(/[\\d.]+/g).map(Number);
          const light = (color) => rgb(color).slice(0, 3).map((part) => part / 255).map(
            (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
            .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
          let one = document.querySelector(arguments[0]);
          const text = light(getComputedStyle(one).color);
          while (rgb(getComputedStyle(one).backgroundColor)[3] === 0) one = one.parentElement;
          const back = light(getComputedStyle(one).backgroundColor);
          return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);""", selector)

    def test_states(self):
        self.wait_texts("#status-state", ["Ready"])
        self.check_width()
        self.assertEqual(self.browser.run("return getComputedStyle(document.body).backgroundColor"), self.ground)
        self.picture("empty")
        event = threading.Event()
        self.server.answers = [answer_events(RICH_TEXT, "The user asks about hash tables."), answer_events("Second."),
                               (400, {"error": {"message": "The model cannot be loaded."}}, []),
                               paused("A last answer that is being written", event)]
        self.may_log = ["400"]
        self.ask("How does a hash table find a key? " + "long_word_" * 12)
        self.wait_end(1)
        self.browser.run("document.getElementById('scroller').scrollTop = 0")
        self.check_width()
        self.picture("answer")
        self.ask("And then?")
        self.wait_end(2)
        self.ask("More")
        self.wait_end(3)
        self.find(".message:nth-last-child(2) [aria-label=Edit]").click()
        self.check_width()
        self.picture("edit")
        self.browser.press("Escape")
        self.ask("Last")
        self.browser.wait(lambda: "written" in self.answers()[-1], "text")
        self.check_width()
        self.picture("writing")
        for selector in (".message-name", ".figures", ".message-error:not([hidden])", "blockquote p", ".markdown a", "th",
                         ".code-language", ".message-user .message-body", "#status dt", "#title", "#conversation-list a"):
            self.assertGreaterEqual(self.contrast(selector), 4.5, selector)
        event.set()
        self.wait_end(4)
        self.find("#open-settings").click()
        self.check_width()
        self.picture("settings")
        self.browser.press("Escape")
        self.find("#conversation-menu summary").click()
        self.check_width()
        self.picture("menu")
        self.browser.press("Escape")


class LooksDark(Looks):
    dark = True
    ground = "rgb(23, 25, 27)"


class LooksNarrow(Looks):
    width, height = 400, 800

    def test_sidebar(self):
        self.ask("Hi")
        self.wait_end()
        self.assertEqual(self.browser.run("return getComputedStyle(document.getElementById('sidebar')).visibility"), "hidden")
        self.find("#open-sidebar").click()
        self.browser.wait(lambda: self.focused() == "close-sidebar", "the sidebar")
        self.browser.wait(lambda: self.browser.run("return document.getElementById('sidebar').getBoundingClientRect().left") == 0,
                          "the sidebar in sight")
        self.check_width()
        self.picture("sidebar")
        self.browser.press("Escape")
        self.browser.wait(lambda: self.focused() == "open-sidebar", "the button again")
        self.find("#open-sidebar").click()
        self.find("#new-conversation").click()
        self.wait_texts(".message", [])
        self.assertFalse(self.browser.run("return document.body.classList.contains('sidebar-open')"))


class LooksNarrowDark(LooksNarrow):
    dark = True
    ground = "rgb(23, 25, 27)"


class RealServer(PageCase):
    """What holds with any model behind the page."""

    def setUp(self):
        self.begin(OPTIONS.server.rstrip("/") + "/")

    def tearDown(self):
        self.end()

    def wait_end(self, n_answers=1):
        browser.TIMEOUT_S = 300
        super().wait_end(n_answers)

    def limit_tokens(self, count):
        self.find("#open-settings").click()
        self.browser.run("document.getElementById('setting-max_tokens').value = arguments[0]", str(count))
        self.find("#settings-form .primary-button").click()

    def test_conversation(self):
        self.limit_tokens(24)
        self.ask(f"Say hello. {MARKUP}")
        self.wait_end()
        self.assertEqual(self.texts(".message-error"), [""])
        self.assertRegex(self.texts(".figures")[0], r"\d+ tokens?")
        answers = self.answers()
        self.assertEqual(self.texts(".message-user .message-body"), [f"Say hello. {MARKUP}"])
        self.reload()
        self.wait_end()
        self.assertEqual(self.answers(), answers)
        self.find("[aria-label=Regenerate]").click()
        self.browser.wait(lambda: self.texts(".versions > span") == ["2 of 2"], "a second version")
        self.ask("And in French?")
        self.wait_end(2)
        self.assertEqual(self.texts(".message-error"), ["", ""])
        self.wait_texts("#status-state", ["Ready"])

    def test_stop(self):
        self.limit_tokens(400)
        self.ask("Count from one to a thousand, in words.")
        self.browser.wait(lambda: self.answers()[-1:] > [""], "the first text")
        self.browser.press("Escape")
        self.wait_end()
        self.assertEqual(self.texts(".message-error"), [""])
        self.ask("Hello")
        self.browser.wait(lambda: len(self.answers()) == 2 and self.answers()[-1] != "", "the second answer")
        self.browser.press("Escape")
        self.wait_end(2)


def main():
    missing = browser.missing_programs()
    if missing:
        print(f"needs {' and '.join(missing)}: apt-get install chromium chromium-driver")
        sys.exit(77)
    scripted = [Conversation, Kept, Safety, Failures, Settings, Access, Units, Looks, LooksDark, LooksNarrow, LooksNarrowDark]
    skipped = scripted if OPTIONS.server else [RealServer]
    for case in skipped:
        case.__unittest_skip__ = True
        case.__unittest_skip_why__ = "the other kind of server"
    if OPTIONS.screenshots:
        os.makedirs(OPTIONS.screenshots, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *REST])


PARSER = argparse.ArgumentParser(add_help=False)
PARSER.add_argument("--server")
PARSER.add_argument("--screenshots")
OPTIONS, REST = PARSER.parse_known_args()

if __name__ == "__main__":
    main()
