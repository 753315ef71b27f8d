# SPDX-License-Identifier: MIT
"""Drives headless Chromium by chromedriver's interface (W3C WebDriver), with the standard library."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
TIMEOUT_S = 20
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Shift": "\ue008", "Control": "\ue009",
        "Backspace": "\ue003", "End": "\ue010", "Home": "\ue011", "Space": " ", "Down": "\ue015"}
# Policy violations that happen before a test can listen are seen by this, run in every document.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
});
"""


def missing_programs():
    """Returns what is not installed of what this needs."""
    return [name for name in ("chromium", "chromedriver") if not shutil.which(name)]


class WebDriverError(Exception):
    pass


class Element:
    def __init__(self, browser, reference):
        self.browser = browser
        self.reference = reference

    def command(self, method, path, body=None):
        return self.browser.command(method, f"/element/{self.reference}{path}", body)

    def click(self):
        self.command("POST", "/click", {})

    def type(self, text):
        self.command("POST", "/value", {"text": text})

    @property
    def text(self):
        return self.command("GET", "/text")

    def property(self, name):
        return self.command("GET", f"/property/{name}")


class Browser:
    """One browser window with a profile of its own."""

    def __init__(self, width=1280, height=900, dark=False):
        self.scratch = tempfile.TemporaryDirectory(prefix=f"qsf-page-{os.getpid()}-")
        self.downloads = os.path.join(self.scratch.name, "downloads")
        os.mkdir(self.downloads)
        self.log = open(os.path.join(self.scratch.name, "chromedriver.log"), "wb")
        # Port 0 lets the driver choose; it prints which.
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=self.log,
                                       env={**os.environ, "HOME": self.scratch.name})
        self.base = self.read_base()
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--no-first-run", "--disable-background-networking", "--disable-component-update",
                     "--disable-sync", f"--window-size={width},{height}",
                     f"--user-data-dir={self.scratch.name}/profile"]
        arguments += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []
        options = {"args": arguments, "binary": shutil.which("chromium"),
                   "prefs": {"download.default_directory": self.downloads, "download.prompt_for_download": False}}
        capabilities = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options,
                                        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}
        session = self.request("POST", "/session", {"capabilities": capabilities})
        self.session = session["sessionId"]
        self.cdp("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        self.cdp("Emulation.setDeviceMetricsOverride",
                 {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.cdp("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def read_base(self):
        for line in self.driver.stdout:
            words = line.decode().rstrip(".\n").split()
            if "successfully" in words and "port" in words:
                return "http://127.0.0.1:" + words[-1]
        raise WebDriverError("chromedriver ended before it listened")

    def close(self):
        try:
            self.command("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()
            self.log.close()
            shutil.rmtree(self.scratch.name, ignore_errors=True)

    def request(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise WebDriverError(json.load(error)["value"]["message"]) from None

    def command(self, method, path, body=None):
        return self.request(method, f"/session/{self.session}{path}", body)

    def cdp(self, name, parameters):
        return self.command("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, url):
        self.command("POST", "/url", {"url": url})

    def reload(self):
        self.command("POST", "/refresh", {})

    def back(self):
        self.command("POST", "/back", {})

    def run(self, script, *arguments):
        """Runs the body of a function in the page, which may be asynchronous. Returns its value."""
        packed = [{ELEMENT: value.reference} if isinstance(value, Element) else value for value in arguments]
        return self.unpack(self.command("POST", "/execute/sync", {"script": script, "args": packed}))

    def unpack(self, value):
        if isinstance(value, dict) and ELEMENT in value:
            return Element(self, value[ELEMENT])
        return [self.unpack(item) for item in value] if isinstance(value, list) else value

    def find_all(self, selector):
        return self.unpack(self.command("POST", "/elements", {"using": "css selector", "value": selector}))

    def find(self, selector):
        return self.wait(lambda: (self.find_all(selector) or [None])[0], f"an element {selector}")

    def wait(self, condition, what):
        """Waits until the condition holds, and returns its value."""
        end = time.monotonic() + TIMEOUT_S
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"waited {TIMEOUT_S} s for {what}")
            time.sleep(0.05)

    def press(self, *names):
        """Presses keys together, and lets them go: press("Shift", "Enter")."""
        keys = [KEYS.get(name, name) for name in names]
        actions = [{"type": "keyDown", "value": key} for key in keys]
        actions += [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def type(self, text):
        """Types into the element that has the focus."""
        actions = [{"type": kind, "value": char} for char in text for kind in ("keyDown", "keyUp")]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.command("GET", "/screenshot")))

    def logs(self, kind):
        """Returns the entries of a log since the last call: "browser" or "performance"."""
        return self.command("POST", "/se/log", {"type": kind})

    def requested_urls(self):
        """Returns the addresses that the page asked the network for since the last call."""
        urls = []
        for entry in self.logs("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                parameters = message["params"]
                urls.append(parameters.get("url") or parameters["request"]["url"])
        return urls
