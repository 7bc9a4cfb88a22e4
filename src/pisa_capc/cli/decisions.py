"""What the commands that decide frames share: their options, how frames are reached, and the table by device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.cli.calibrate import chosen_calibrator
from pisa_capc.cli.edge import Engine, load_run, place
from pisa_capc.cli.model import Device, confirm
from pisa_capc.cli.options import CalibrationName, reject_option
from pisa_capc.cli.output import listed, print_table
from pisa_capc.cli.recordings import PseudonymKey, Reading, renaming
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console as notes
from pisa_capc.core.progress import progress

if TYPE_CHECKING:
    import torch

    from pisa_capc.data.frames import UnlabelledFrames
    from pisa_capc.decide.identification import Choices, Identified, Predicted
    from pisa_capc.model.inference import TrainedModel
    from pisa_capc.signal.recordings.base import FileRecording

NAMED = 6  # addresses in a line of the table

RunFolder = typer.Argument(metavar="RUN", help="A run that `pisa train` wrote.", show_default=False)
WaveformName = typer.Option(
    None, help="What frames to look for: as wifi, lora, adsb or burst; by default the model's.", show_default=False
)
KeepCfo = typer.Option(
    False, "--keep-cfo", help="Leave the carrier offset in the samples, as in the frames that the model was trained on."
)
EqualiseAntennas = typer.Option(
    False,
    "--equalise-antennas",
    help="The model was trained on frames whose antennas have equal power, as the paper's Wi-Fi set.",
)


def rejection(name: str, trained: TrainedModel) -> str | None:
    """The requested score; by default the usual one of the model, with a note if it is not the best."""
    from pisa_capc.decide.calibration.openset.names import DEFAULT, EARLIER
    from pisa_capc.decide.calibration.policy import AUTO, usual

    if name != AUTO:
        return None if name == "none" else name
    found = usual(trained.statistics).rejection
    if found == EARLIER:
        why = f"for the model keeps no sessions; trained again it would be {DEFAULT}"
        notes.print(f"unknown devices are set aside by {found}, {why}.", highlight=False, soft_wrap=True)
    return found


@dataclass(frozen=True)
class Deciding(Reading):
    """Which model decides about frames, and how: the options that identify, predict and verify have in common."""

    run: Path = RunFolder
    calibration: str | None = CalibrationName
    reject: str = reject_option("auto")
    keep_cfo: bool = KeepCfo
    equalise_antennas: bool = EqualiseAntennas
    waveform: str | None = WaveformName
    pseudonyms: Path | None = PseudonymKey
    device: str = Device
    engine: str = Engine

    def model(self) -> tuple[TrainedModel, torch.device]:
        """The model, and where it computes."""
        where = place(self.device, self.engine)
        return load_run(self.run, self.engine), where

    def choices(self, trained: TrainedModel, alpha: float = 0.05, together_s: float | None = None) -> Choices:
        from pisa_capc.decide.identification import Choices

        calibration = chosen_calibrator(self.calibration, trained.statistics)
        score = rejection(self.reject, trained)
        return Choices(calibration, score, alpha, together_s, self.keep_cfo, self.equalise_antennas)

    def suitable(self, trained: TrainedModel, paths: Sequence[str]) -> list[FileRecording]:
        """The recordings; unsuitable ones are refused before anything is read."""
        from pisa_capc.decide.identification import check_domain, check_recording

        check_domain(trained)
        found = self.open(paths)
        for recording in found:
            check_recording(trained, recording.about)
        return found

    def identified(
        self,
        trained: TrainedModel,
        recordings: Sequence[FileRecording],
        choices: Choices,
        device: torch.device,
        show: bool,
    ) -> Identified:
        """Decisions on the frames of the recordings; if there is none, the command says so and ends."""
        from pisa_capc.decide.identification import identify, waveform_of

        name = waveform_of(trained) if self.waveform is None else self.waveform
        found = self.find_in_all(recordings, name, show, renaming(self.pseudonyms))
        with progress("embed", sum(len(one.frames) for one in found), show) as bar:
            return identify(trained, found, choices, device, bar.advance)


def predicted(
    trained: TrainedModel, frames: UnlabelledFrames, choices: Choices, device: torch.device, show: bool
) -> Predicted:
    """Decisions on frames that need not be found."""
    from pisa_capc.decide.identification import predict

    with progress("embed", len(frames), show) as bar:
        return predict(trained, frames, choices, device, bar.advance)


def frames_of(
    trained: TrainedModel,
    inputs: Sequence[str],
    environment: str | None = None,
    skip_bad: bool = False,
    anyway: bool = False,
) -> UnlabelledFrames | None:
    """The frames of a dataset or of files of channel state; None for recordings, where they are to be found."""
    from pisa_capc.data.store.dataset import SUBCARRIERS
    from pisa_capc.signal.formats import CsiOptions, ImportOptions, read_frames

    folders = [path for path in inputs if Path(path).is_dir()]
    if folders and len(inputs) > 1:
        raise ConfigError(f"{', '.join(inputs)}: expected one dataset, or files. Give {folders[0]} by itself.")
    if folders:
        return _of_dataset(trained, Path(folders[0]), environment, anyway)
    if environment is not None:
        raise ConfigError("--environment: chooses among those of a dataset, and these are files. Leave it out.")
    if trained.run.domain != SUBCARRIERS:
        return None
    options = ImportOptions(csi=CsiOptions(skip_bad=skip_bad))
    frames = read_frames("csi", [Path(path) for path in inputs], options)
    trained.check_frames(frames)
    return frames


def _of_dataset(trained: TrainedModel, folder: Path, environment: str | None, anyway: bool) -> UnlabelledFrames:
    from pisa_capc.data.frames import load
    from pisa_capc.evidence.evaluation import doubts

    frames = load(folder)
    trained.check_frames(frames)
    confirm(doubts(trained, frames), anyway)
    names = frames.environments if environment is None else listed(environment)
    if seen := sorted({*names} & {*trained.run.source}):
        text = f"note: {', '.join(seen)} is a source of the run: these may be frames that it was trained on."
        notes.print(text, style="yellow", highlight=False, soft_wrap=True)
    return frames.where(environment=names).unlabelled()


def show(who: Predicted) -> None:
    """The table by device."""
    from pisa_capc.decide.identification.write import by_device, of_device, recordings_of
    from pisa_capc.signal.measurement.fit import SUSPECTED

    rows = []
    for name, members in by_device(who):
        own = of_device(who, members)
        addresses = own.get("addresses", {})
        claimed = ", ".join(f"{address} ({count:,})" for address, count in list(addresses.items())[:NAMED])
        claimed += f" and {len(addresses) - NAMED:,} more" * (len(addresses) > NAMED)
        sure = "–" if name is None else f"{own['probability']:.3f}"
        rows.append([name or "unknown", f"{own['frames']:,}", f"{own['share']:.1%}", sure, claimed or "–"])
    headings = ["device", "frames", "share", "mean confidence", "addresses claimed (frames)"]
    if not any("addresses" in of_device(who, members) for _, members in by_device(who)):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    shown = recordings_of(who)
    title = ", ".join(shown[:NAMED]) + f" and {len(shown) - NAMED:,} more" * (len(shown) > NAMED)
    print_table(f"{title}: {len(who):,} frames", headings, rows, left=("device", "addresses claimed (frames)"))
    if who.explainer.devices:
        _show_measured(who)
    if who.misfits is not None:
        notes.print(
            f"{who.misfits:,} of {len(who):,} frames do not fit the waveform (p < {SUSPECTED:g}, as one clean frame in "
            "a hundred at most): a filter, interference or clipping may have changed their measurements.",
            soft_wrap=True,
        )
    notes.print(_calibration_line(who), soft_wrap=True)


def _show_measured(who: Predicted) -> None:
    """Measurements of the frames of each device together, and in a line below what the device has."""
    from pisa_capc.decide.identification.write import by_device

    rows, scores, quantities = list[list[str]](), who.scores, who.explainer.quantities
    for name, members in by_device(who):
        error = None if scores.error is None else scores.error[members]
        own = who.explainer.measured(scores.embedding[members], error)
        rows.append([name or "unknown", *(own[one].number if own else "–" for one in quantities)])
        if name in who.explainer.devices:
            rows.append(["  as enrolled", *(who.explainer.devices[name][one].number for one in quantities)])
    headings = ["device", *(f"{name} ({unit})" for name, unit in quantities.items())]
    print_table("Measured, all frames of a device together, ± 95 %", headings, rows, left=("device",))


def _calibration_line(who: Predicted) -> str:
    result, title = who.calibration, who.choices.calibrator(who.scores.statistics).title
    said = f"calibration: {title}, {result.changed:,} of {len(who):,} decisions changed"
    if result.judged is not None:
        pairs = zip(result.captures, result.judged, strict=True)
        said += "; how evenly devices send, by capture: " + ", ".join(f"{c.capture}: {j.level}" for c, j in pairs)
    reject = who.choices.reject
    return said + ("; no frame was set aside." if reject is None else f"; unknown devices set aside by {reject}.")
