"""Words of earlier versions work for one version, with a note, and no help shows them."""

from __future__ import annotations

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from pisa_capc import cli
from pisa_capc.cli.old import OLD_WORDS


def arguments_of(given: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The line that the parser of `pisa` is given."""
    monkeypatch.setattr(cli, "_run", lambda: None)
    with pytest.raises(SystemExit):
        cli.main()  # which imports the commands
    seen: list[str] = []
    monkeypatch.setattr(TyperGroup, "parse_args", lambda self, ctx, args: seen.extend(args))
    group = get_command(cli.app)
    group.parse_args(None, given.split())  # type: ignore[arg-type]
    return " ".join(seen)


@pytest.mark.parametrize(
    ("given", "now", "note"),
    [
        (
            "train wifi --no-guard --epochs 5",
            "train wifi --epochs 5",
            "--no-guard goes with the next version; there is",
        ),
        ("--plugin mine.py train wifi --guard", "--plugin mine.py train wifi", "--guard goes with"),
        ("calibrate s.npz --preset safe --out o", "calibrate s.npz --out o", "--preset safe goes with"),
        ("calibrate fit s.npz --preset=safe", "calibrate fit s.npz", "--preset safe goes with"),
        ("calibrate s.npz --preset paper", "calibrate s.npz --calibration ucapc", "--preset paper goes with"),
        ("calibrate s.npz --preset=papr", "calibrate s.npz --preset papr", ""),
        (
            "calibrate s.npz --method lame",
            "calibrate s.npz --calibration lame",
            "--method goes with the next version; write --calibration.",
        ),
        (
            "calibrate stream f --preset without-prior",
            "calibrate stream f --calibration ucapc --set calibration.prior=none",
            "--preset",
        ),
        ("verify run roof --alpha=0.1", "verify run roof --alarm-alpha 0.1", "--alpha goes with"),
        ("identify run roof --alpha 0.1", "identify run roof --alpha 0.1", ""),
        ("simulate wifi --guard", "simulate wifi --guard", ""),
        ("train -- --guard", "train -- --guard", ""),
        ("--trusted me.pub train wifi --guard", "--trusted me.pub train wifi", "--guard goes with"),
        ("train wifi --out --guard", "train wifi --out --guard", ""),  # the folder has that name
        ("calibrate s.npz --out --method", "calibrate s.npz --out --method", ""),
        ("--plugin --guard train wifi", "--plugin --guard train wifi", ""),
        ("import iq a.npy --out b --card intel", "import iq a.npy --out b --csi-card intel", "--card goes with"),
        ("calibrate s.npz --preset", "calibrate s.npz --preset", ""),
    ],
)
def test_old_words_become_new_ones(
    given: str, now: str, note: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert arguments_of(given, monkeypatch) == now
    said = capsys.readouterr().err
    assert said.startswith(f"note: {note}") if note else not said


def test_every_old_word_says_what_to_do_instead() -> None:
    for old in OLD_WORDS:
        assert old.new or old.why, old
        assert old.value is None or not old.flag, old
