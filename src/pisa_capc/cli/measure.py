"""The command measure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import typer

from pisa_capc.cli import app
from pisa_capc.cli.options import AsJson, Force, options_of
from pisa_capc.cli.output import print_table
from pisa_capc.cli.recordings import PseudonymKey, Reading, ReferenceFile, reference_in, renaming
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.progress import console as notes

if TYPE_CHECKING:
    from pisa_capc.signal.measurement.cards import Card, Comparison
    from pisa_capc.signal.measurement.senders import Measured

ANOTHER = 1  # exit code
KEYED = "keyed"  # in the place of a waveform's name
LEAST_P = 1e-9  # that is told: no model of errors holds farther out
NOBODY = "(none)"  # the sender of frames that claim no address, or not with a right checksum


@app.command("measure")
@options_of(Reading)
def measure_(
    reading: Reading,
    data: list[str] = typer.Argument(
        metavar="DATASET|RECORDING…",
        help="A dataset, or recordings as of `pisa detect`, in which frames are found first.",
        show_default=False,
    ),
    waveform: str | None = typer.Option(
        None,
        help="What frames to look for: as wifi, lora or adsb. Default: for a dataset by its sample rate; for "
        "recordings wifi. keyed: pulses of on-off keying in a dataset, of any waveform.",
        show_default=False,
    ),
    reference: Path | None = ReferenceFile,
    sender: str | None = typer.Option(
        None, help="Measure one sender alone: a device of a dataset, an address of recordings.", show_default=False
    ),
    to_csv: Path | None = typer.Option(None, "--csv", help="Write a row per frame.", show_default=False),
    plot: Path | None = typer.Option(
        None, help="Draw: the frames and an ellipse per sender, a panel per flaw.", show_default=False
    ),
    card: Path | None = typer.Option(
        None, help="Store the measurements of one sender, as JSON, for --against.", show_default=False
    ),
    against: list[Path] = typer.Option(
        [], metavar="CARD", help="Is it the same radio? Compare each sender with a card; may be given again."
    ),
    preamble: bool = typer.Option(
        False, "--preamble", help="Of recordings, measure preambles alone: for cards to compare with those of datasets."
    ),
    pseudonyms: Path | None = PseudonymKey,
    force: bool = Force,
    as_json: bool = AsJson,
) -> None:
    """Measure transmitters, without training: image, leakage, compression, CFO and SNR, each with its error.

    Frames have to begin with a known waveform. Senders are the devices of a dataset; of recordings the addresses that
    frames claim with a right checksum. Frames of recordings that have one are measured whole, the others on their
    preamble.

    Exit code 0: frames were measured and, with --against, each sender can be the radio of one of the cards; 1: some
    sender is of none of them, or no frame was found; 2: something could not be measured.
    """
    from pisa_capc.data.store.files import refuse_existing
    from pisa_capc.evidence.figures.style import check_picture
    from pisa_capc.signal.measurement.cards import Card

    for path in (to_csv, card):
        if path is not None:
            refuse_existing(path, force)
    if plot is not None:
        check_picture(plot)
    kept = [Card.load(path) for path in against]
    if waveform == KEYED:
        _keyed(data, sender, to_csv, as_json, [card, plot, reference, *against])
        return
    measured = _measured(data, reading, waveform, reference, pseudonyms, not preamble, not as_json)
    if sender is not None:
        measured = measured.of(sender)
    cards = measured.cards
    if card is not None and len(cards) != 1:
        names = ", ".join(each.name for each in cards)
        raise ConfigError(f"--card {card}: is of one sender, found {len(cards)} ({names}). Name one with --sender.")
    compared = {each.name: [each.compared(other) for other in kept] for each in cards}
    written = _write(measured, cards, to_csv, plot, card)
    if as_json:
        print(json.dumps(_as_json(measured, cards, compared if kept else None), indent=1))
    else:
        _show(measured, cards)
        if kept:
            _show_compared(compared)
        for path in written:
            notes.print(f"written: {path}", highlight=False, soft_wrap=True)
    if kept and not all(any(one.same for one in found) for found in compared.values()):
        raise typer.Exit(ANOTHER)


def _keyed(
    data: Sequence[str], sender: str | None, to_csv: Path | None, as_json: bool, others: Sequence[Path | None]
) -> None:
    """Pulses of on-off keying, without a known waveform: a row per sender."""
    from pisa_capc.data.frames import load
    from pisa_capc.data.store.files import write_text_atomic
    from pisa_capc.signal.measurement.keyed import FEWEST, KeyedEstimator, keyed_rows
    from pisa_capc.signal.measurement.quantities import WIDE

    if len(data) != 1 or not Path(data[0]).is_dir() or any(others):
        raise ConfigError(
            f"--waveform {KEYED}: measures one dataset, without --card, --against, --plot and --reference. Make a "
            "dataset of recordings by `pisa import iq`."
        )
    frames = load(data[0])
    rows = list(keyed_rows(frames, KeyedEstimator(frames.sample_rate_hz)))
    rows = [row for row in rows if sender in (None, row["sender"])]
    if not rows:
        raise DataError(
            f"{data[0]}: no frame of {sender or 'any sender'} holds {FEWEST} on-off keyed pulses of one length with "
            "silence between them. Cut frames that hold whole messages: `pisa import iq --waveform burst:gap=…`."
        )
    titles = [name for name in rows[0] if f"{name} low" in rows[0]]
    told = []
    for name in sorted({row["sender"] for row in rows}):
        own = [row for row in rows if row["sender"] == name]
        columns = {title: [row[title] for row in own] for title in titles}
        means = {title: (fmean(column), WIDE * pstdev(column)) for title, column in columns.items()}
        told.append({"sender": name, "frames": len(own), **means})
    if to_csv is not None:
        write_text_atomic(to_csv, _table_text(rows))
    if as_json:
        print(json.dumps({"waveform": KEYED, "frames": len(frames), "measured": len(rows), "senders": told}, indent=1))
        return
    headings = ["sender", "frames", *(title.replace("(s)", "(µs)") for title in titles)]
    shown = [
        [own["sender"], f"{own['frames']:,}", *(_in_words(title, *own[title]) for title in titles)] for own in told
    ]
    print_table(f"on-off keying, {len(rows):,} of {len(frames):,} frames", headings, shown)
    notes.print("±: 95 % of a sender's frames.", highlight=False, soft_wrap=True)


def _in_words(title: str, value: float, half: float) -> str:
    scale = 1e6 if title.endswith("(s)") else 1.0
    return f"{scale * value:.1f} ± {scale * half:.1f}"


def _measured(
    data: Sequence[str],
    reading: Reading,
    waveform: str | None,
    reference: Path | None,
    pseudonyms: Path | None,
    whole: bool,
    show: bool,
) -> Measured:
    from pisa_capc.data.frames import load
    from pisa_capc.signal.detection.dataset import read_frames, whole_frames
    from pisa_capc.signal.formats.cuts import open_reference
    from pisa_capc.signal.measurement.reference import measure_against
    from pisa_capc.signal.measurement.senders import measure

    if any(Path(each).is_dir() for each in data):
        if len(data) > 1:
            raise ConfigError(f"{len(data)} places, some of them folders: expected one dataset, or recordings.")
        if pseudonyms is not None or reading != Reading(None, None, None, None, False, True, None):
            raise ConfigError(f"{data[0]}: is a folder; options of how recordings are read do not go with a dataset.")
        own = load(data[0])
        if reference is None:
            return measure(own, waveform)
        if waveform is not None:
            raise ConfigError(f"--reference {reference} and --waveform {waveform}: expected one of them.")
        return measure_against(own, open_reference(reference, own.sample_rate_hz))
    opened, rename = reading.open(data), renaming(pseudonyms)
    sent = None if reference is None else reference_in(reference, opened, waveform)
    found = reading.find_in_all(opened, sent or waveform or "wifi", show, rename)
    frames, each = read_frames(found)
    if sent is not None:
        return measure_against(frames, sent)
    senders = [(frame.header.fcs and frame.header.transmitter) or NOBODY for frame in each]
    return measure(frames, found[0].waveform.name, senders, whole_frames(found) if whole else ())


def _write(
    measured: Measured, cards: Sequence[Card], to_csv: Path | None, figure: Path | None, card: Path | None
) -> list[Path]:
    """The picture first: it alone can be refused for what is in it."""
    from pisa_capc.data.store.files import write_text_atomic

    if figure is not None:
        from pisa_capc.evidence.figures.measured import measured_picture

        measured_picture(measured, figure)
    if card is not None:
        cards[0].save(card)
    if to_csv is not None:
        write_text_atomic(to_csv, _as_csv(measured))
    return [path for path in (figure, card, to_csv) if path is not None]


def _as_csv(measured: Measured) -> str:
    return _table_text(list(measured.rows()))


def _table_text(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    longest = max(rows, key=len)  # frames that could not be measured have no quantities
    writer = csv.DictWriter(text, longest, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _as_json(measured: Measured, cards: Sequence[Card], compared: dict[str, list[Comparison]] | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "waveform": measured.waveform.name,
        "frames": len(measured.measurement),
        "measured": int(measured.measurement.measured.sum()),
        "note": RECEIVER,
        "senders": [_with_modulation(card, measured) for card in cards],
    }
    if compared is not None:
        told["against"] = [
            {"sender": name, "card": one.name, "p": one.p_value, "same": one.same, "apart": one.each}
            for name, found in compared.items()
            for one in found
        ]
    return told


def _with_modulation(card: Card, measured: Measured) -> dict[str, Any]:
    own = measured.modulation_of(card.name)
    return card.to_json() | ({"modulation": [each.to_json() for each in own]} if own else {})


RECEIVER = "Image and leakage of the receiver are in every estimate: compare cards of one receiver."


def _show(measured: Measured, cards: Sequence[Card]) -> None:
    found = [{(each.name, each.unit): each.number for each in card.quantities} for card in cards]
    image = ("image angle", "°")  # the one angle that data sheets know
    columns = {
        "angle (°)" if key == image else f"{key[0]} ({key[1]})": key
        for key in found[0]
        if key == image or not key[0].endswith(" angle")
    }
    rows = [
        [
            card.name,
            f"{card.frames:,}",
            f"{card.samples:,}",
            *(own[key] for key in columns.values()),
            f"{round(card.suspected * card.frames):,}",
        ]
        for card, own in zip(cards, found, strict=True)
    ]
    modulation = [measured.modulation_of(card.name) for card in cards]
    title = f"{measured.waveform.title}, {len(measured.measurement):,} frames"
    print_table(title, ["sender", "frames", "samples", *columns, "suspected"], rows)
    if modulation[0]:
        headings = ["sender", *(f"{each.name} ({each.unit})" for each in modulation[0])]
        both = zip(cards, modulation, strict=True)
        shifts = [[card.name, *(each.number for each in own)] for card, own in both if own]
        print_table("How they shift their frequency, beyond what is specified", headings, shifts)
    said = [
        "±: 95 % intervals, of a sender's mean; those of CFO and SNR hold 95 % of its frames.",
        RECEIVER,
    ]
    if measured.whole.any():
        said.append(
            f"Whole frames: {int(measured.whole.sum()):,}, those with a right checksum. Image and leakage of a sender "
            "who has any are those of the data in them; all else is measured on preambles."
        )
    if any(card.suspected for card in cards):
        said.append(
            "Suspected: frames in which something beyond these flaws was sent or received, as a filter, a late echo "
            "or interference (one in a hundred is by chance); what it adds to the flaws is not in the intervals."
        )
    if left := len(measured.measurement) - int(measured.measurement.measured.sum()):
        said.append(f"Left out: {left:,} frames in which no antenna hears the preamble.")
    for sentence in said:
        notes.print(sentence, highlight=False, soft_wrap=True)


def _show_compared(compared: dict[str, list[Comparison]]) -> None:
    from pisa_capc.signal.measurement.cards import DIFFERENT

    flaws = next(iter(compared.values()))[0].each
    rows = [
        [name, one.name, "yes" if one.same else "no", f"{one.p_value:.2g}"]
        + [f"{each:.1f}" for each in one.each.values()]
        for name, found in compared.items()
        for one in found
    ]
    print_table("Is it the same radio?", ["sender", "card", "can be", "p", *flaws], rows, left=("sender", "card"))
    notes.print(
        f"p: chance that one radio at one receiver, measured twice, differs as much or more; below {DIFFERENT:g} it is "
        "another one. Of each flaw: how far apart, in standard deviations; one is usual. Where most frames are "
        "suspected, a no may also mean another channel or receiver.",
        highlight=False,
        soft_wrap=True,
    )
