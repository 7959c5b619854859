import re
import subprocess
import sys


def test_the_demo_shows_sizes_an_equal_prefix_and_a_zero_tail():
    command = [sys.executable, "-W", "error", "-m", "kvtide.state_transition"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    for words in ("[36, 1, 256, 256]", "4.50 MB", "[36, 1, 512, 256]", "9.00 MB", "200 positions"):
        assert words in text
    live = 2 if "rows stayed where they are: yes" in text else 0
    assert text.count("prefix equal: yes") == text.count("tail zero: yes") == 2 + live
    assert live or "not built" in text
    assert "NO" not in text and len(re.findall(r"[0-9] us$", text, re.M)) == 2 + live
