"""Names in places where they do not belong: those that travel outside the one file for them, methods in the service."""

import ast
import re

from tools.house.source import House

WIRE = re.compile(r"(control|bits|scale|send)\.|class_means|class_counts")
WIRE_HOME = "contract.updates"
METHODS = re.compile(r"scaffold|fedtgp|ds_fl|disco(?!nnect)|velocity|adam", re.IGNORECASE)


def wire_names(house: House) -> list[str]:
    """Return the strings of product code that begin with a name that travels, docstrings left out."""
    return [
        f"{module.path}:{node.lineno} {node.value!r}"
        for module in house.product
        if module.name != WIRE_HOME
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and WIRE.match(node.value)
        and node not in module.docstrings
    ]


def methods_in_service(house: House) -> list[str]:
    """Return the lines of the service, comments too, that name a method."""
    return [
        f"{module.path}:{number} {line.strip()}"
        for module in house.below("service")
        for number, line in enumerate(module.text.splitlines(), 1)
        if METHODS.search(line)
    ]
