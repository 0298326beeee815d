import base64
import io
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ebar.report.image_sheet import GIVEN, Shape, completion_sheet, png, sample_sheet, write_sheets
from ebar.types import Sequences

BINARY = Shape(height=2, width=2, levels=2)


def sequences(*rows: list[int]) -> Sequences:
    return Sequences(torch.tensor(rows), torch.full((len(rows),), len(rows[0])))


def opened(data: bytes) -> NDArray[Any]:
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    return np.asarray(image.open(io.BytesIO(data)))


def test_a_png_is_what_was_put_in(generator):
    picture = torch.randint(0, 256, (5, 7, 3), generator=generator, dtype=torch.uint8)
    assert opened(png(picture)).tolist() == picture.tolist()
    assert png(picture) == png(picture)


def test_samples_side_by_side_on_white():
    data = sample_sheet(sequences([0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]), BINARY, columns=2, scale=1)
    sheet = opened(data)[:, :, 0]
    w, b = 255, 0
    assert sheet.tolist() == [
        [w, w, w, w, w, w, w, w, w, w],
        [w, w, w, w, w, w, w, w, w, w],
        [w, w, b, w, w, w, w, w, w, w],
        [w, w, w, b, w, w, w, w, w, w],
        [w, w, w, w, w, w, w, w, w, w],
        [w, w, w, w, w, w, w, w, w, w],
        [w, w, b, b, w, w, w, w, w, w],
        [w, w, b, b, w, w, w, w, w, w],
        [w, w, w, w, w, w, w, w, w, w],
        [w, w, w, w, w, w, w, w, w, w],
    ]


def test_colours_keep_their_order_and_scale():
    shape = Shape(height=1, width=2, channels=3)
    sheet = opened(sample_sheet(sequences([255, 0, 7, 1, 2, 3]), shape, scale=3))
    assert sheet.shape == (3 + 4, 6 + 4, 3)
    assert sheet[2, 2].tolist() == sheet[4, 4].tolist() == [255, 0, 7]
    assert sheet[4, 7].tolist() == [1, 2, 3]


def test_what_is_given_of_a_completion_is_tinted():
    originals = sequences([0, 0, 1, 1])
    sheet = opened(completion_sheet(originals, sequences([0, 0, 0, 1], [0, 0, 1, 0]), 2, BINARY, scale=1))
    assert sheet.shape == (2 + 4, 3 * 4 + 2, 3)
    assert sheet[2, 2].tolist() == [0, 0, 0]  # the original as it is
    assert sheet[2, 6].tolist() == [round(0.35 * part) for part in GIVEN]
    assert sheet[3, 6].tolist() == [0, 0, 0]  # drawn, so untinted
    assert sheet[3, 7].tolist() == sheet[3, 10].tolist() == [255, 255, 255]
    with pytest.raises(ValueError, match="3 completions of 2 images"):
        completion_sheet(sequences([0] * 4, [1] * 4), sequences([0] * 4, [1] * 4, [1] * 4), 2, BINARY)


def test_sheets_stand_below_one_another_in_one_file(tmp_path):
    sheet = png(torch.zeros(4, 6, 3, dtype=torch.uint8))
    text = base64.b64encode(sheet).decode()
    write_sheets({"a & b": text, "c": text}, tmp_path / "sheets.svg")
    written = (tmp_path / "sheets.svg").read_text()
    assert written.count('width="6" height="4"') == 2
    assert "a &amp; b" in written
    assert written.count(text) == 2
    ElementTree.fromstring(written.partition("\n")[2])  # well-formed
