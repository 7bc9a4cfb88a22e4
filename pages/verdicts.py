"""What agrees with the paper and what does not, in sentences made from the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pages.sides import Ours, Published, Row, reference
from pisa_capc.data.protocol import DIRECT, PAPER
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.results import mean, paired_difference
from pisa_capc.evidence.benchmark.tables import FULL, is_comparison, stage_name
from pisa_capc.model.encoders import encoder_title


def sentences(protocol: Protocol, ours: Ours, paper: Published, rows: Sequence[Row]) -> list[str]:
    """What agrees with the paper and what does not, from the numbers alone."""
    found = [_signs(protocol, ours, paper, rows)]
    if is_comparison(protocol):
        found += _ranking("Group A, direct inference, best first", ours, paper, [r for r in rows if r.stage == DIRECT])
        found += _ranking("Group B, after U-CAPC, best first", ours, paper, [r for r in rows if r.stage == PAPER])
        found += [sentence for stage in (DIRECT, PAPER) for sentence in _against_pisa(ours, rows, stage)]
    elif any(len(row.variants) > 1 for row in protocol.methods):
        found += _costs(protocol, ours, paper, [r for r in rows if r.variant != FULL])
    elif any(len(row.calibration) > 1 for row in protocol.methods) and len(protocol.methods) == 1:
        found += _ranking("Stages, best first", ours, paper, rows)
    else:
        found += _stage_orders(ours, paper, rows)
    return [*found, *_calibration_gains(ours, rows)]


def _signs(protocol: Protocol, ours: Ours, paper: Published, rows: Sequence[Row]) -> str:
    """Whether changes go where the paper's go; where our interval holds zero, nothing is claimed."""
    found: dict[str, list[str]] = {"same": [], "other": [], "undecided": []}
    for row in rows:
        before = reference(protocol, row)
        theirs = None if before is None else paper.change(row, before)
        change = None if before is None else paired_difference(ours.f1(row), ours.f1(before))
        if theirs is not None and change is not None:
            decided = change.low > 0 or change.high < 0
            same = change.mean * theirs > 0
            found["undecided" if not decided else "same" if same else "other"].append(row.label)
    if not any(found.values()):
        return "No change has both numbers, ours and the paper's."
    text = f"The change has the paper's sign in {len(found['same'])} of {sum(map(len, found.values()))} rows"
    text += f"; the opposite one for {', '.join(found['other'])}" if found["other"] else ""
    return text + (f"; the interval holds zero for {', '.join(found['undecided'])}." if found["undecided"] else ".")


NEAR_CHANCE = 0.15  # of ten devices, in the paper's sets and in ours: a mean below it ranks nothing


def _ranking(what: str, ours: Ours, paper: Published, rows: Sequence[Row], high: bool = True) -> list[str]:
    """Our order beside the paper's, of what is above chance. high: whether a high Macro-F1 comes first."""
    mine, theirs = _ordered(ours.mean_f1, rows, high), _ordered(paper.f1, rows, high)
    if not mine:
        return []
    told = [row for row in mine if (ours.mean_f1(row) or 0) >= NEAR_CHANCE]
    rest = [row for row in mine if row not in told]
    near = f"near chance (below {NEAR_CHANCE}), in no order: {_named(sorted(rest))}" if rest else ""
    text = f"{what}: {'; '.join(filter(None, [_named(told), near]))}."
    shared = [row for row in theirs if row in told]
    if len(shared) < 2:
        return [f"{text} There is no order of the paper to compare it with."]
    return [f"{text} The paper's order {_verdict(told, shared)}: {_named(row for row in theirs if row in mine)}."]


def _costs(protocol: Protocol, ours: Ours, paper: Published, rows: Sequence[Row]) -> list[str]:
    """The variants by what they lose where that is decided, the others, and those that learn their source less well."""
    changes = {}
    for row in rows:
        before = reference(protocol, row)
        change = before and paired_difference(ours.f1(row), ours.f1(before))
        if change:
            changes[row] = change
    lost = sorted((row for row in changes if changes[row].high < 0), key=lambda row: changes[row].mean)
    theirs = [row for row in _ordered(paper.f1, rows, high=False) if row in lost]
    found = []
    if lost:
        found.append(f"Losses that leave out zero, most costly removal first: {_named(lost)}.")
    if len(theirs) > 1:
        found[-1] += f" The paper's order of these {_verdict(lost, theirs)}: {_named(theirs)}."
    for what, there in (
        ("Better than the whole model", lambda change: change.low > 0),
        ("Not decided", lambda change: change.low <= 0 <= change.high),
    ):
        if named := [f"{row.variant} ({change.mean:+.3f})" for row, change in changes.items() if there(change)]:
            found.append(f"{what}: {', '.join(named)}.")
    weak = []
    for row in changes:
        own, whole = mean(ours.source(row)), mean(ours.source(row._replace(variant=FULL)))
        if own and whole and own.mean < whole.mean - 0.1:
            weak.append(f"{row.variant} ({own.mean:.2f} of {whole.mean:.2f})")
    if weak:
        found.append(
            f"Of held-out source frames these know less already: {', '.join(weak)}. What they lose in the new place is "
            "not the move's doing alone."
        )
    return found


def _ordered(value: Callable[[Row], float | None], among: Iterable[Row], high: bool) -> list[Row]:
    known = [(number, row) for row in among if (number := value(row)) is not None]
    return [row for _, row in sorted(known, key=lambda pair: pair[0], reverse=high)]


def _verdict(mine: Sequence[Row], shared: Sequence[Row]) -> str:
    """Whether our order of the rows that the paper has too is the paper's."""
    own = [row for row in mine if row in shared]
    return (
        "is the same" if own == shared else "is first the same, then another" if own[0] == shared[0] else "is another"
    )


def _against_pisa(ours: Ours, rows: Sequence[Row], stage: str) -> list[str]:
    """Methods whose paired difference to PISA at a stage is decided, and those for which it is not."""
    verdicts: dict[str, list[str]] = {"behind": [], "undecided": [], "ahead": []}
    for row in rows:
        if row.stage == stage and row.method != "pisa":
            difference = paired_difference(ours.f1(row), ours.f1(row._replace(method="pisa")))
            if difference:
                verdict = "behind" if difference.high < 0 else "ahead" if difference.low > 0 else "undecided"
                verdicts[verdict].append(stage_name(row.method, DIRECT))
    if not any(verdicts.values()):
        return []
    listed = "; ".join(f"{verdict} {', '.join(names) or 'none'}" for verdict, names in verdicts.items())
    what = "Against PISA by direct inference" if stage == DIRECT else "Against PISA-CAPC, all after U-CAPC"
    return [f"{what} (decided where the interval leaves out zero): {listed}."]


def _named(rows: Iterable[Row]) -> str:
    """Rows of one encoder by what tells them apart."""
    return ", ".join(row.variant if row.variant != FULL else stage_name(row.method, row.stage) for row in rows)


def _stage_orders(ours: Ours, paper: Published, rows: Sequence[Row]) -> list[str]:
    """By encoder the order of Single, PISA and PISA-CAPC, lowest first; encoders of the same orders in one sentence."""
    encoders: dict[tuple[str, str], list[str]] = {}
    for encoder in dict.fromkeys(row.encoder for row in rows):
        stages = [row for row in rows if row.encoder == encoder and row.stage in (DIRECT, PAPER)]
        values = [(ours.mean_f1(row), paper.f1(row), stage_name(row.method, row.stage)) for row in stages]
        known = [(a, b, name) for a, b, name in values if a is not None and b is not None]
        if len(known) > 1:
            mine, theirs = (" < ".join(name for *_, name in sorted(known, key=lambda v: v[i])) for i in (0, 1))
            encoders.setdefault((mine, theirs), []).append(encoder_title(encoder))
    return [
        f"{', '.join(names)}: {mine}, " + ("as in the paper." if mine == theirs else f"where the paper has {theirs}.")
        for (mine, theirs), names in encoders.items()
    ]


def _calibration_gains(ours: Ours, rows: Sequence[Row]) -> list[str]:
    """In how many runs each calibration is ahead of direct inference, and where its mean is behind."""
    found = []
    for stage in dict.fromkeys(row.stage for row in rows if row.stage != DIRECT):
        own = [row for row in rows if row.stage == stage and ours.f1(row)]
        gains = {
            row: [value - direct[seeds] for seeds, value in ours.f1(row).items() if seeds in direct]
            for row in own
            if (direct := ours.f1(row._replace(stage=DIRECT)))
        }
        every = [gain for values in gains.values() for gain in values]
        if not every:
            continue
        name = {PAPER: "U-CAPC as published", "safe": "U-CAPC under the guard"}.get(stage, f"The calibration {stage}")
        ahead = sum(gain > 0 for gain in every)
        behind = [row.label for row, values in gains.items() if sum(values) < 0]
        still = sum(gain == 0 for gain in every)
        same = f", the same in {still}" if still else ""
        lost = f"; its mean is behind for {', '.join(behind)}" if behind else ""
        found.append(f"{name} is ahead of direct inference in {ahead} of {len(every)} runs{same}{lost}.")
    return found
