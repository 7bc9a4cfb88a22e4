"""Receive arrays, in wavelengths."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.geometry import ArrayGeometry, circular, custom, default_geometry, linear, named, square


def test_the_square_has_half_a_wavelength_between_neighbours_and_its_diagonal_across() -> None:
    distances = square().distances()
    np.testing.assert_allclose(np.sort(distances[0]), [0, 0.5, 0.5, 0.5 * np.sqrt(2)])
    np.testing.assert_array_equal(distances, distances.T)


def test_a_line_is_equally_spaced() -> None:
    np.testing.assert_allclose(linear(5, 0.3).distances()[0], 0.3 * np.arange(5))


@pytest.mark.parametrize("antennas", [2, 3, 8])
def test_neighbours_on_a_circle_are_the_spacing_apart(antennas: int) -> None:
    array = circular(antennas, 0.7)
    neighbours = np.linalg.norm(array.positions - np.roll(array.positions, 1, axis=0), axis=1)
    np.testing.assert_allclose(neighbours, 0.7)
    np.testing.assert_allclose(np.linalg.norm(array.positions, axis=1), np.linalg.norm(array.positions[0]))


def test_own_coordinates_may_have_one_to_three_dimensions() -> None:
    assert custom([[0], [1]]).coordinates == ((0, 0, 0), (1, 0, 0))
    assert custom([[0, 1, 2]]).coordinates == ((0, 1, 2),)


def test_arrays_survive_json() -> None:
    array = circular(3)
    assert ArrayGeometry.from_json(json.loads(json.dumps(array.to_json()))) == array


def test_names_give_their_arrays() -> None:
    assert named("square", 4) == square()
    assert named("linear", 3, 0.4) == linear(3, 0.4)
    assert named("circular", 6) == circular(6)
    assert default_geometry(4).kind == "square"
    assert default_geometry(3).kind == "linear"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: custom([[0, 0], [0, 0]]), "two antennas share one position"),
        (lambda: custom([[np.nan, 0]]), "finite"),
        (lambda: custom([0, 1]), r"expected shape \(antennas, 1 to 3\), found \(2,\)"),
        (lambda: linear(0), "expected shape"),
        (lambda: circular(0), "expected shape"),
        (lambda: named("squar", 4), "unknown array 'squar'. Did you mean 'square'"),
        (lambda: named("square", 3), "a square array has 4, 9, 16, … antennas, not 3"),
        (lambda: ArrayGeometry.from_json({"kind": "x"}), "expected {kind, coordinates_wavelengths"),
        (lambda: ArrayGeometry.from_json([]), "array geometry"),
    ],
)
def test_arrays_that_cannot_be_are_refused(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_square_of_nine_is_three_by_three() -> None:
    distances = named("square", 9, 0.5).distances()
    assert sorted(distances[4]) == pytest.approx([0] + [0.5] * 4 + [0.5 * 2**0.5] * 4)
