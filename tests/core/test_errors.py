"""Messages a user can act on."""

from __future__ import annotations

from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError, ModelError, PisaError, unknown_name


def test_an_unknown_name_comes_with_the_nearest_and_all_known() -> None:
    message = unknown_name("encoder", "resnt", ["tcn", "resnet", "cnn"])
    assert message == "unknown encoder 'resnt'. Did you mean 'resnet'? Known: cnn, resnet, tcn."


def test_what_is_no_word_is_a_name_too() -> None:
    assert unknown_name("calibration", 7, {"paper": 1, 8: 2}) == "unknown calibration 7. Known: 8, paper."


def test_a_name_near_nothing_suggests_nothing() -> None:
    assert unknown_name("encoder", "zzz", ["cnn"]) == "unknown encoder 'zzz'. Known: cnn."


def test_a_missing_extra_says_how_to_get_it() -> None:
    assert str(MissingExtraError("sigmf", "sigmf", "SigMF")) == (
        "SigMF needs the package sigmf: pip install 'pisa-capc[sigmf]'"
    )


def test_every_kind_is_caught_as_one() -> None:
    assert all(issubclass(kind, PisaError) for kind in (DataError, ConfigError, ModelError, MissingExtraError))
