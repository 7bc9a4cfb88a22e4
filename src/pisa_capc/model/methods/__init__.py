"""Training methods: PISA, Single, and the methods compared with them, in one registry.

A method builds a model and gives the loss of a batch; the trainer does the rest. To add one: a file here with a class
under `@register_method("name")`, and its import below; or the same class in a plugin.
"""

from pisa_capc.core.moved import renamed

from pisa_capc.model.methods.registry import (  # isort: skip
    METHODS,
    Batch,
    Method,
    Setup,
    build_method,
    is_solved,
    check_names,
    method_list,
    method_names,
    method_title,
    plugins_used,
    register_method,
)
from pisa_capc.model.methods import (  # noqa: F401  (each registers its methods)
    alignment,
    closed_form,
    disentangled,
    equalised,
    mixing,
    pisa,
    risks,
    single,
)

__all__ = [
    "METHODS",
    "Batch",
    "Method",
    "Setup",
    "build_method",
    "check_names",
    "is_solved",
    "method_list",
    "method_names",
    "method_title",
    "plugins_used",
    "register_method",
]

register = renamed(__name__, "register", register_method)
