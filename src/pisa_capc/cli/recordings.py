"""What the commands on raw recordings share: how they are named, opened and searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.signal.detection import Found
    from pisa_capc.signal.detection.finding import Rename
    from pisa_capc.signal.recordings.base import FileRecording
    from pisa_capc.signal.waveforms import Waveform
    from pisa_capc.signal.waveforms.reference import SentReference

NONE_FOUND = 1  # exit code, as of grep

Recordings = typer.Argument(
    metavar="RECORDING…",
    help="SigMF (.sigmf-meta, .sigmf-data, .sigmf-collection), .wav, .npy, .mat, or plain samples (.cs8, .cu8, .cs16, "
    ".cf32). A pattern in quotes, as 'rx*.cs16', is one recording with a file per antenna.",
    show_default=False,
)
ReferenceFile = typer.Option(
    None,
    "--reference",
    metavar="FILE",
    help="What was sent, where all devices send the same that is known as samples of one antenna: .npy, .mat, .wav, "
    "SigMF or plain samples. It may repeat, and be heard from anywhere on.",
    show_default=False,
)
PseudonymKey = typer.Option(
    None, metavar="KEYFILE", help="Put keyed hashes in the place of addresses; made if absent.", show_default=False
)


@dataclass(frozen=True)
class Reading:
    """How recordings are read: the options that all commands on them have in common."""

    format: str | None = typer.Option(
        None, help="Encoding of plain samples, as cf32 or cs16; where ending or metadata are wrong.", show_default=False
    )
    sample_rate: float | None = typer.Option(None, help="Sample rate in Hz; of plain samples.", show_default=False)
    carrier: float | None = typer.Option(None, help="Carrier in Hz; of plain samples.", show_default=False)
    antennas: int | None = typer.Option(None, min=1, help="Antennas of plain samples; interleaved.", show_default=False)
    per_antenna: bool = typer.Option(
        False, "--per-antenna", help="The files are the antennas of one recording, in the given order."
    )
    check: bool = typer.Option(True, help="Compare data with its SHA-512, where metadata has one.")
    workers: int | None = typer.Option(
        None,
        min=1,
        help="Processes at a time: those that search a long Wi-Fi recording; default one per core.",
        show_default=False,
    )

    def open(self, paths: Sequence[str]) -> list[FileRecording]:
        """The recordings that paths name; several of one name go by their paths."""
        groups = [list(paths)] if self.per_antenna else [[path] for path in paths]
        opened = [self._opened(group) for group in groups]
        names = [recording.about.name for recording in opened]
        return [
            recording
            if names.count(recording.about.name) == 1
            else replace(recording, about=replace(recording.about, name=str(recording.files[0].path)))
            for recording in opened
        ]

    def _opened(self, paths: list[str]) -> FileRecording:
        if len(paths) == 1 and paths[0].lower().endswith(".mat") and Path(paths[0]).is_file():
            from pisa_capc.signal.formats.cuts import open_mat

            return open_mat(Path(paths[0]), self.sample_rate, self.carrier, self.antennas)
        from pisa_capc.signal.recordings import open_recording

        return open_recording(
            paths,
            format=self.format,
            sample_rate_hz=self.sample_rate,
            carrier_hz=self.carrier,
            antennas=self.antennas,
            check=self.check,
        )

    def find_frames(
        self,
        recording: FileRecording,
        waveform: str | Waveform,
        show: bool,
        rename: Rename | None = None,
        decode: bool = True,
    ) -> Found:
        """The frames of one recording, with a bar on the way."""
        from pisa_capc.core.progress import progress
        from pisa_capc.signal.detection.finding import blocks_of, detect

        with progress(f"detect {recording.about.name}", blocks_of(recording, waveform), show) as bar:
            return detect(
                recording, waveform, decode=decode, rename=rename, after_block=bar.advance, workers=self.workers
            )

    def find_in_all(
        self, recordings: Sequence[FileRecording], waveform: str | Waveform, show: bool, rename: Rename | None = None
    ) -> list[Found]:
        """The frames of the recordings; if there is none, the command says so and ends."""
        found = [self.find_frames(recording, waveform, show, rename) for recording in recordings]
        if not any(one.frames for one in found):
            seconds = sum(one.recording.about.length / one.recording.about.sample_rate_hz for one in found)
            other = "" if found[0].waveform.name == "burst" else " Frames of any other signal: --waveform burst."
            notes.print(
                f"No {found[0].waveform.title} frame was found in {seconds:.3g} s. See whether there are signals at "
                f"all, at this sample rate and carrier.{other}",
                soft_wrap=True,
            )
            raise typer.Exit(NONE_FOUND)
        return found


def reference_in(path: Path, recordings: Sequence[FileRecording], waveform: str | None) -> SentReference:
    """The waveform of --reference, at the rate of the recordings where its file says none."""
    from pisa_capc.signal.formats.cuts import open_reference

    if waveform is not None:
        raise ConfigError(f"--reference {path} and --waveform {waveform}: expected one of them.")
    return open_reference(path, recordings[0].about.sample_rate_hz)


def renaming(key: Path | None) -> Rename | None:
    """What puts pseudonyms in the place of addresses, where a key is given."""
    from pisa_capc.signal.detection.pseudonyms import Pseudonyms

    return None if key is None else Pseudonyms.of_file(key)
