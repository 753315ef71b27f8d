# SPDX-License-Identifier: MIT
"""What tests of the page share: a browser, and what must hold at the end of every test."""

import unittest

from browser import Browser

# What the page must not do is attack by these: each would set window.attacked.
MARKUP = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script><svg onload="window.attacked=1">'


class PageCase(unittest.TestCase):
    """Every test fails when the page asked another origin for something, broke its policy, or wrote
    to the console. A server of its own gives each test an origin, and so storage, of its own."""

    width, height, dark = 1280, 900, False

    browsers = {}  # by size and scheme; classes share them

    @classmethod
    def setUpClass(cls):
        key = (cls.width, cls.height, cls.dark)
        if key not in cls.browsers:
            cls.browsers[key] = Browser(*key)
            unittest.addModuleCleanup(cls.browsers[key].close)
        cls.browser = cls.browsers[key]

    def begin(self, url):
        self.url = url
        self.may_log = []  # texts of console entries that a test expects
        self.browser.logs("browser")
        self.browser.logs("performance")
        self.open()

    def open(self, path=""):
        self.browser.open(self.url + path)
        self.browser.wait(lambda: self.browser.run("return document.querySelector('#model')?.length > 0"), "the models")

    def reload(self):
        self.check_violations()
        self.browser.reload()
        self.browser.wait(lambda: self.browser.run("return document.querySelector('#model')?.length > 0"), "the models")

    def check_violations(self):
        self.assertEqual(self.browser.run("return window.violations"), [])
        self.assertIsNone(self.browser.run("return window.attacked ?? null"))

    def end(self):
        self.check_violations()
        for entry in self.browser.logs("browser"):
            if not any(text in entry["message"] for text in self.may_log):
                self.fail(f"the console says {entry}")
        for url in self.browser.requested_urls():
            if not url.startswith((self.url, "blob:" + self.url, "data:,")):
                self.fail(f"the page asked for {url}")
        self.browser.open("about:blank")

    # What a user does and sees.

    def find(self, selector):
        return self.browser.find(selector)

    def count(self, selector):
        return self.browser.run("return document.querySelectorAll(arguments[0]).length", selector)

    def texts(self, selector):
        """The texts of all elements of a selector, hidden ones too."""
        return self.browser.run("return Array.from(document.querySelectorAll(arguments[0]), (one) => one.textContent)",
                                selector)

    def wait_texts(self, selector, expected):
        latest = []

        def is_there():
            latest[:] = self.texts(selector)
            return latest == expected

        try:
            self.browser.wait(is_there, selector)
        except AssertionError:
            self.assertEqual(latest, expected)

    def focused(self):
        """The focused element, by its id, name, or text."""
        return self.browser.run("const one = document.activeElement; return one.id || one.ariaLabel || one.textContent")

    def ask(self, text):
        self.find("#question").click()
        self.browser.type(text)
        self.browser.press("Enter")

    def wait_end(self, n_answers=1):
        """Waits until no answer is being written and as many are shown."""
        self.browser.wait(lambda: self.count(".message-assistant:not(.is-writing) .figures") == n_answers and
                          not self.find("#send").property("hidden"), f"{n_answers} complete answers")

    def answers(self):
        return self.texts(".message-assistant .message-body > .markdown")

    def check_width(self):
        """No part of the page is wider than the window."""
        wide = self.browser.run("""
          const scroller = document.getElementById("scroller");
          const parts = [document.documentElement, document.body, document.querySelector("main"), scroller];
          return parts.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.tagName + one.id);""")
        self.assertEqual(wide, [])
        self.assertEqual(self.browser.run("return window.innerWidth"), self.width)
