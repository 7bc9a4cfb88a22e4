"""Single behind an equaliser: the control of EADA."""

from __future__ import annotations

from torch import nn

from pisa_capc.methods.equaliser import NEEDS, Equalised, EqualiserSettings, equaliser_of
from pisa_capc.methods.registry import register
from pisa_capc.methods.single import SingleMethod
from pisa_capc.model import Single


class EqualisedSingle(Equalised, Single):
    """Single's network behind an equaliser."""


@register("equalised")
class EqualisedMethod(SingleMethod):
    """Single behind an equaliser: every antenna is equalised with the known preamble, then cross-entropy only.

    min E L_ce(h(f(x̂)), y), x̂ = equalise(x) as in `Equaliser`.

    What this gains over Single is the equaliser's doing; what EADA gains over this is the alignment's. The frame has to
    begin with the preamble. Equaliser and its values are EADA's.
    """

    Settings = EqualiserSettings
    citation = "control of this software; equaliser of its reading of EADA"
    needs = NEEDS
    settings: EqualiserSettings

    def build(self, runs: int = 1) -> nn.Module:
        return EqualisedSingle(equaliser_of(self.settings, self.setup), *self.network, runs)
