import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests


@pytest.fixture(scope="session")
def models():
    """Folder of the tiny models."""
    return Path(__file__).parent.parent / "goldens" / "models"
