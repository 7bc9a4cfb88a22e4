"""A model at work, and the tests that rest on it: decision, verdict and alarms of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pisa_capc.decide.identification.explain import Explainer
from pisa_capc.decide.identification.verification import SEVERAL
from pisa_capc.live.listen.claims import Tests
from pisa_capc.live.listen.events import CHANGED, NOT_ITS_ADDRESS, SHARED_ADDRESS, UNKNOWN_DEVICE
from pisa_capc.live.listen.recognise import Recognised, Recogniser
from pisa_capc.live.listen.senders import Sender
from pisa_capc.model.inference.tensors import digest


class Cause(NamedTuple):
    """Of an alarm: its kind, the device it is about, words, and whether all senders of its address are shown."""

    kind: str
    device: str | None
    text: str
    everybody: bool = False


@dataclass(eq=False)
class Verifier:
    """Recognises frames and tests whom they are from."""

    recogniser: Recogniser
    tests: Tests

    def __post_init__(self) -> None:
        model = self.recogniser.trained
        self.devices = model.devices
        self.explainer = Explainer(model)
        self.fingerprint = " ".join([digest(model.model.state_dict()), *model.devices])

    def tested(self, sender: Sender, time_s: float, got: Recognised, i: int) -> tuple[str | None, list[Cause]]:
        """The verdict on the address of frame i, and alarms."""
        tests, devices, address = self.tests, self.devices, sender.address
        like = int(got.probability[i].argmax())
        claimed, verdict, causes = tests.device_of(address), None, list[Cause]()
        measured = None if got.error is None else (got.embedding[i], got.error[i])
        if claimed is not None and address is not None:
            verdict, alarm = tests.claimed(sender, time_s, got.logits[i], measured)
            own = f"{address} is the address of {devices[claimed]}, and"
            if alarm == SEVERAL:
                text = f"{own} several devices send under it: at two carriers, with two fingerprints."
                causes.append(Cause(SHARED_ADDRESS, devices[claimed], text, everybody=True))
            elif alarm is not None:
                sounds = devices[like] if got.known[i] and like != claimed else "none that is known"
                text = f"{own} does not sound like it (now: {sounds}).{self._why(got, i, devices[claimed])}"
                causes.append(Cause(NOT_ITS_ADDRESS, devices[claimed], text))
        elif got.unknown is not None and tests.stranger(
            sender.number, float(got.unknown[i]), None if address is None else measured
        ):  # frames without an address may be of several senders at one carrier: each is judged by itself
            who = address or f"a sender without an address, {sender.last_hz / 1e3:+.1f} kHz off the carrier,"
            text = f"{who} sounds like no device that is known; most like {devices[like]}."
            causes.append(Cause(UNKNOWN_DEVICE, None, text + self._why(got, i, devices[like])))
        if got.known[i] and claimed in (None, like) and tests.changed(like, time_s, got.logits[i]):
            text = f"{devices[like]} does not sound as it did: its frames differ more from it than its earlier ones."
            causes.append(Cause(CHANGED, devices[like], text))
        return verdict, causes

    def _why(self, got: Recognised, i: int, device: str) -> str:
        """How frame i differs from the device, as one more sentence."""
        error = None if got.error is None else got.error[[i]]
        why = self.explainer.reason(got.embedding[[i]], error, device, fit=got.fit(i))
        return "" if why is None else f" {why[0].upper()}{why[1:]}."
