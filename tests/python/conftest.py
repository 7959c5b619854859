import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the modules beside the tests


def pytest_ignore_collect(collection_path, config):
    """Without the native module, only what works without it is tested."""
    needs_native = collection_path.name.startswith("test_") and "import _native" in collection_path.read_text()
    try:
        from kvtide import _native  # noqa: F401
    except ImportError:
        return needs_native or None
    return None


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory):
    """No test keeps packed weights in the user's own cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def models():
    """Folder of the tiny models."""
    return HERE.parent / "goldens" / "models"


@pytest.fixture(scope="session")
def tiny(models):
    return models / "llama-mha-untied.gguf"


@pytest.fixture
def model(tiny):
    import kvtide

    with kvtide.Model.load(tiny) as model:
        yield model


@pytest.fixture
def session(model):
    with model.session() as session:
        yield session


@pytest.fixture(scope="session")
def text(models):
    return (models / "tiny.txt").read_text()
