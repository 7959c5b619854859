"""The modules of the package form no circle, neither when they run nor for type checkers."""

import ast
from pathlib import Path

import kvtide

FOLDER = Path(kvtide.__file__).parent


def imported(path):
    """Modules of the package that a module imports anywhere, in functions and under TYPE_CHECKING, too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{name.name}" for name in node.names)
            names.add(node.module)
    inner = {name.removeprefix("kvtide.").split(".")[0] for name in names if name.startswith("kvtide.")}
    return {name for name in inner if (FOLDER / f"{name}.py").exists()}


def test_no_module_imports_itself_by_way_of_others():
    graph = {path.stem: imported(path) for path in FOLDER.glob("*.py") if path.stem != "__init__"}
    assert len(graph) > 15 and "generation" in graph["session"]
    done = set()
    while len(done) < len(graph):
        free = {name for name, needs in graph.items() if name not in done and needs <= done}
        assert free, f"these import each other: { {name: sorted(graph[name] - done) for name in sorted(graph.keys() - done)} }"
        done |= free


def test_the_lower_modules_do_not_know_the_upper_ones():
    assert not imported(FOLDER / "generation.py") & {"session", "model", "_loaded"}
    assert "model" not in imported(FOLDER / "session.py")
