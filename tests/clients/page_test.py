"""The page at / in headless Chromium, against kvtide serve and a real model: typed into, clicked, looked at.

Run by `make test-page`, with KVTIDE and KVTIDE_MODEL set. Screenshots go to the folder that SCREENSHOTS names.
"""

import base64
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

import websocket

PROGRAM, MODEL = os.environ["KVTIDE"], os.environ["KVTIDE_MODEL"]
LIMIT_S = 120
BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]


def line_with(process, pattern):
    """What the first line of standard error holds that matches."""
    for line in process.stderr:
        if found := re.search(pattern, line):
            return found.group(0)
    raise AssertionError(f"the program ended without a line like {pattern}")


class Tab:
    """One tab, driven by Chromium's debugging protocol."""

    def __init__(self, port):
        listed = urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list").read()
        page = next(each for each in json.loads(listed) if each["type"] == "page")
        self.socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=LIMIT_S, suppress_origin=True)
        self.count = 0
        self.complaints = []
        self.ask("Runtime.enable")

    def ask(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            said = json.loads(self.socket.recv())
            if said.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(said["params"]["exceptionDetails"])
            if said.get("id") == self.count:
                assert "error" not in said, said
                return said["result"]

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition):
        end = time.monotonic() + LIMIT_S
        while not self.run(condition):
            said = self.run("document.getElementById('problem').textContent")
            assert time.monotonic() < end, f"waited {LIMIT_S} s for {condition}; {said} {self.complaints}"
            time.sleep(0.05)

    def type(self, text):
        self.run("document.getElementById('text').focus()")
        self.ask("Input.insertText", text=text)

    def press(self, key, modifiers=0):
        code = {"Enter": 13, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers)

    def size(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def screenshot(self, name):
        folder = Path(os.environ.get("SCREENSHOTS", tempfile.gettempdir()))
        folder.mkdir(parents=True, exist_ok=True)
        picture = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        (folder / name).write_bytes(base64.b64decode(picture["data"]))


class PageTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        serve = [PROGRAM, "serve", "-m", f"small={MODEL}", "--port", "0", "--kv-budget", "256M", "--quiet",
                 "--slot-save-path", self.folder.name]  # fmt: skip
        self.server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
        self.url = line_with(self.server, r"http://127\.0\.0\.1:\d+")
        browser = [*BROWSER, f"--user-data-dir={self.folder.name}/chromium", "about:blank"]
        self.browser = subprocess.Popen(browser, stderr=subprocess.PIPE, text=True)
        port = re.search(r"\d+$", line_with(self.browser, r"ws://127\.0\.0\.1:\d+")).group(0)
        self.tab = Tab(port)
        self.tab.size(1280, 1000)
        self.tab.ask("Page.navigate", url=self.url)
        self.tab.wait("typeof refresh === 'function' && $('model').value === 'small' && $('budget').textContent !== ''")

    def tearDown(self):
        self.tab.socket.close()
        self.browser.terminate()
        self.browser.communicate()
        self.server.send_signal(signal.SIGTERM)
        self.server.communicate()
        self.folder.cleanup()

    def send(self, text):
        self.tab.type(text)
        self.tab.press("Enter", modifiers=2)  # Control
        self.tab.wait("running !== null || !$('problem').hidden")

    def test_a_chat_beside_its_memory(self):
        tab = self.tab
        tab.run("$('kind').value = 'procedural'; $('kind').dispatchEvent(new Event('change')); $('size').value = '16M'")
        tab.run("$('temperature').value = 0; $('most').value = 96; $('drift').checked = true")
        self.send("The harbour lay still. The old boats came home one by one. " * 90 + "What came home?")
        tab.wait("$('running').querySelector('.bar') !== null")
        tab.wait("running === null || turns.at(-1).content.length > 40")
        tab.screenshot("page-writing.png")
        tab.wait("running === null")
        self.assertEqual(tab.run("$('problem').textContent"), "")
        self.assertTrue(tab.run("turns.at(-1).figures.includes('tokens/s')"))
        tab.wait("$('states').textContent.includes('; drift ')")
        tab.run("$('drift').checked = false")  # it reads the whole text again
        self.send("And then?")
        tab.wait("running === null")
        cached = tab.run("Number(turns.at(-1).figures.match(/, ([\\d,]+) of them/)[1].replaceAll(',', ''))")
        self.assertGreater(cached, 1000, "the chat is not read again")
        tab.wait("$('states').querySelectorAll('article').length > 0")
        self.assertIn("summaries", tab.run("$('states').textContent"))
        tab.screenshot("page.png")
        tab.size(390, 844)
        self.assertLessEqual(tab.run("document.documentElement.scrollWidth"), 390, "nothing sticks out on a phone")
        tab.screenshot("page-phone.png")
        self.assertEqual(tab.complaints, [])

    def test_states_by_click_and_by_keyboard(self):
        tab = self.tab
        tab.run("$('most').value = 8")
        self.send("Name a fish.")
        tab.wait("running === null && $('states').querySelectorAll('article').length > 0")
        number = tab.run("$('states').querySelector('article strong').textContent.match(/\\d+/)[0]")
        click = "document.getElementById('state-%s-%s').click()"
        articles = tab.run("$('states').querySelectorAll('article').length")
        tab.run(click % (number, "Fork"))
        tab.wait(f"$('states').querySelectorAll('article').length === {articles + 1}")
        fork = tab.run("$('states').querySelector('article strong').textContent.match(/\\d+/)[0]")
        tab.run(f"document.getElementById('state-{fork}-Truncate').focus()")
        tab.press("Enter")
        tab.ask("Input.dispatchKeyEvent", type="char", text="\r")
        tab.wait("$('ask').open")
        tab.run("document.getElementById('ask-length').focus()")
        tab.ask("Input.insertText", text="3")
        tab.run("$('ask').querySelector('button.main').click()")
        tab.wait("$('states').querySelector('article').textContent.includes(' 3 tokens')")
        tab.run(click % (fork, "Save"))
        tab.wait("$('ask').open")
        tab.run("document.getElementById('ask-filename').value = 'talk'; $('ask').querySelector('button.main').click()")
        end = time.monotonic() + LIMIT_S
        while not (Path(self.folder.name) / "talk").exists():
            self.assertLess(time.monotonic(), end, "the file was not written")
            time.sleep(0.05)
        tab.run(click % (fork, "Keep"))
        tab.wait("$('states').textContent.includes(', kept')")
        tab.run(click % (fork, "Drop"))
        tab.wait(f"$('states').querySelectorAll('article').length === {articles}")
        self.assertEqual((tab.complaints, tab.run("$('problem').textContent")), ([], ""))


if __name__ == "__main__":
    unittest.main()
