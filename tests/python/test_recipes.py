"""The recipes of docs/python.md run as they stand."""

import json
import re
import shutil
from pathlib import Path

import pytest

from kvtide import _native  # noqa: F401  needs the extension

DOCS = Path(__file__).parents[2] / "docs" / "python.md"
TEMPLATE = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>'}}{% endfor %}"


def recipes():
    """(title, code) of each block between the heading and the next one."""
    text = DOCS.read_text().split("## Recipes\n")[1].split("\n## ")[0]
    titles = re.split(r"\n\*\*(.+?)\*\*", text)
    for title, part in zip(titles[1::2], titles[2::2]):
        for i, code in enumerate(re.findall(r"```python\n(.*?)```", part, re.DOTALL)):
            yield pytest.param(code, id=title.rstrip(".") + (f" {i + 1}" if i else ""))


@pytest.fixture(scope="module")
def kitchen(models, tmp_path_factory):
    """A folder with model.gguf, model.mlpackage and book.txt; later recipes find what earlier ones saved."""
    folder = tmp_path_factory.mktemp("kitchen")
    shutil.copytree(models.parent / "folders" / "llama-f32", folder / "model.gguf")
    (folder / "model.gguf" / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    shutil.copytree(models.parent / "coreml" / "functions.mlpackage", folder / "model.mlpackage")
    (folder / "book.txt").write_text((models / "tiny.txt").read_text() * 8)
    return folder


def test_there_is_a_page_of_recipes():
    assert len(list(recipes())) >= 11


@pytest.mark.parametrize("code", list(recipes()))
def test_a_recipe_is_short_and_runs(code, kitchen, monkeypatch, capsys):
    for library in ("torch", "matplotlib"):
        if f"import {library}" in code:
            pytest.importorskip(library)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(kitchen)
    monkeypatch.setenv("MPLBACKEND", "agg")
    exec(compile(code, "docs/python.md", "exec"), {"__name__": "recipe"})  # noqa: S102
    if "print(" in code:
        assert capsys.readouterr().out.strip()
