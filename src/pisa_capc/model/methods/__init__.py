"""Training methods: PISA, Single, and whatever is compared with them. One file each, one registry.

A method builds a model and gives the loss of a batch; the trainer does the rest. To add one: a file here with a class
under `@register_method("name")`, and its import below; or the same class in a plugin.
"""

from pisa_capc.core.moved import renamed

from pisa_capc.model.methods.registry import (  # isort: skip
    METHODS,
    NO_ENCODER,
    Batch,
    Method,
    Setup,
    build_method,
    check_names,
    method_list,
    method_names,
    method_title,
    plugins_used,
    register_method,
)
from pisa_capc.model.methods import (  # noqa: F401  (each registers itself)
    closed_form,
    control,
    coral,
    dann,
    difex,
    eada,
    equalised,
    gad,
    groupdro,
    irm,
    mixup,
    mmd,
    pisa,
    rffcc,
    riei,
    sigmix,
    single,
)

__all__ = [
    "METHODS",
    "NO_ENCODER",
    "Batch",
    "Method",
    "Setup",
    "build_method",
    "check_names",
    "method_list",
    "method_names",
    "method_title",
    "plugins_used",
    "register_method",
]

register = renamed(__name__, "register", register_method)
