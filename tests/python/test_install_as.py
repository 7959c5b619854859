"""The one call that makes the module importable under another name. Each test is a process of its own."""

import subprocess
import sys

import pytest


def run(code, **kwargs):
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60, **kwargs)


def test_existing_scripts_run_unchanged_after_one_call():
    run("""
import kvtide
kvtide.install_as("anemll.utils.state_transition")
from anemll.utils.state_transition import transition_kv_state, StateTransitionManager
import anemll.utils.state_transition as a
from anemll.utils import state_transition as b
import kvtide.state_transition as c
assert a is b is c is kvtide.install_as("anemll.utils.state_transition")
assert transition_kv_state is c.transition_kv_state
""")


def test_nothing_is_installed_without_being_asked():
    run("""
import kvtide, kvtide.state_transition
try:
    import anemll
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("anemll appeared by itself")
""")


@pytest.fixture
def real(tmp_path):
    """A real package of that name."""
    utils = tmp_path / "anemll" / "utils"
    utils.mkdir(parents=True)
    (tmp_path / "anemll" / "__init__.py").write_text("mark = 'real'\n")
    (utils / "__init__.py").write_text("")
    (utils / "state_transition.py").write_text("mark = 'real'\n")
    return tmp_path


def test_a_real_module_is_never_hidden_unless_asked(real):
    run(f"""
import sys
sys.path.insert(0, {str(real)!r})
import kvtide
try:
    kvtide.install_as("anemll.utils.state_transition")
except ImportError as error:
    assert "exists already" in str(error)
else:
    raise SystemExit("hidden")
import anemll.utils.state_transition
assert anemll.utils.state_transition.mark == "real"
kvtide.install_as("anemll.utils.state_transition", replace=True)
import anemll.utils.state_transition
assert anemll.utils.state_transition is kvtide.state_transition
assert anemll.mark == "real"
""")


def test_a_real_package_without_the_module_gains_it(real):
    (real / "anemll" / "utils" / "state_transition.py").unlink()
    run(f"""
import sys
sys.path.insert(0, {str(real)!r})
import kvtide
kvtide.install_as()
import anemll.utils.state_transition
assert anemll.utils.state_transition is kvtide.state_transition
assert anemll.mark == "real"
""")


@pytest.mark.parametrize("name", ["anemll", "", "a..b", "a.1", "a.b c", None, 3, "kvtide.session", "kvtide.x.y"])
def test_names_that_make_no_sense_are_refused(name):
    import kvtide

    with pytest.raises(ValueError):
        kvtide.install_as(name)


def test_a_module_that_is_no_package_cannot_be_a_parent():
    import kvtide

    with pytest.raises(ImportError, match="'json.decoder' is not a package"):
        kvtide.install_as("json.decoder.state_transition")
