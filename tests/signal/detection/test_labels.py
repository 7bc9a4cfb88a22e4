"""Whose a frame is."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.store.dataset import UNLABELLED, CaptureSpec
from pisa_capc.signal.detection.base import NO_IQ, FoundFrame
from pisa_capc.signal.detection.dataset import Annotated, by_address, file_name, labeller
from pisa_capc.signal.phy import Header
from pisa_capc.signal.recordings import Annotation


def at(start: int, header: Header | None = None) -> FoundFrame:
    return FoundFrame(start, NO_IQ, np.zeros(1), np.zeros(1), 1.0, header=header or Header(), start=start)


@pytest.mark.parametrize(("fcs", "device"), [(True, "02-00-00-00-00-0a"), (False, None), (None, None)])
def test_an_address_counts_where_the_checksum_is_right(fcs: bool | None, device: str | None) -> None:
    assert by_address(at(0, Header(transmitter="02:00:00:00:00:0a", fcs=fcs))) == device
    assert by_address(at(0, Header(fcs=fcs))) is None


def test_the_annotation_that_a_frame_lies_in_names_it() -> None:
    label = Annotated([Annotation(100, 50, "a"), Annotation(400, 100, "b"), Annotation(450, 10, "c")])
    expected = {50: None, 99: "a", 100: "a", 149: "a", 150: None, 399: "b", 440: "c", 455: "c", 470: "b", 600: None}
    assert {start: label(at(start)) for start in expected} == expected


def test_one_annotation_may_cover_everything() -> None:
    label = Annotated([Annotation(0, None, "a"), Annotation(1000, 10, None)])
    assert [label(at(start)) for start in (5, 500, 1005, 10**9)] == ["a", "a", None, "a"]


def test_annotations_without_devices_are_refused() -> None:
    with pytest.raises(DataError, match="no annotation names a device"):
        labeller("annotation", [Annotation(0, 10, None)], {}, "a")


def test_paths_and_nobody() -> None:
    assert labeller("pattern", [], {"device": "D7"}, "a")(at(3)) == "D7"
    assert labeller("none", [], {}, "a")(at(3)) == UNLABELLED
    with pytest.raises(ConfigError, match=r"give --pattern with \{device\}"):
        labeller("pattern", [], {}, "a")
    with pytest.raises(ConfigError, match=r"unknown label 'adress'. Did you mean 'address'"):
        labeller("adress", [], {}, "a")


@pytest.mark.parametrize("name", ["e8:de:27", "../../etc", ".hidden", "a/b\\c", "tab\there", 'q"?*<>|'])
def test_every_label_can_be_a_file_name(name: str) -> None:
    assert CaptureSpec("E1", file_name(name), "L1", 1).device
