"""D: workers. Most of these cases are breaks of running processes: see tests/chaos and the index."""

import ast
import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.conftest import ROOT


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what runs when a module is imported."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)


def test_d02_nothing_touches_cuda_before_the_child() -> None:
    """The worker forks nothing, imports no torch, and no module asks for CUDA when it is imported."""
    code = "import sys, worker.app, worker.runner, worker.tasks; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split()[0] == "False", done.stdout + done.stderr
    for package in ("worker", "contract", "client_sdk"):
        for path in (ROOT / package).rglob("*.py"):
            for node in _module_level(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    assert node.attr != "cuda", f"{path}:{node.lineno}"
    compose = (ROOT / "docker-compose.yml").read_text() + (ROOT / "Dockerfile").read_text()
    assert "prefork" not in compose and "--pool=threads" in compose
