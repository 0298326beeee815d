import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ebar.data.images import Images, binarised, read_image_file
from ebar.errors import UserError
from ebar.training.batches import Batches
from ebar.types import Space

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def idx(array: NDArray[Any]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_idx_files_plain_and_compressed(tmp_path):
    (tmp_path / "some").write_bytes(idx(PIXELS))
    (tmp_path / "some.gz").write_bytes(gzip.compress(idx(PIXELS)))
    for name in ("some", "some.gz"):
        images = read_image_file(tmp_path / name)
        assert images.pixels[..., 0].tolist() == PIXELS.tolist()
        assert (len(images), images.height, images.width, images.channels, images.levels) == (2, 3, 4, 1, 256)
    colours = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
    (tmp_path / "colours").write_bytes(idx(colours))
    assert read_image_file(tmp_path / "colours").pixels.tolist() == colours.tolist()


def test_npz_archives(tmp_path):
    np.savez(tmp_path / "one.npz", anything=PIXELS)
    np.savez(tmp_path / "two.npz", images=PIXELS, labels=np.arange(2))
    for name in ("one.npz", "two.npz"):
        assert read_image_file(tmp_path / name).pixels[..., 0].tolist() == PIXELS.tolist()


def test_folders_of_png_in_the_order_of_their_names(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    image.fromarray(PIXELS[1]).save(tmp_path / "b.png")
    image.fromarray(PIXELS[0]).save(tmp_path / "a.png")
    assert read_image_file(tmp_path).pixels[..., 0].tolist() == PIXELS.tolist()
    colours = tmp_path / "colours"
    colours.mkdir()
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    image.fromarray(array).save(colours / "a.png")
    assert read_image_file(colours).pixels[0].tolist() == array.tolist()
    image.fromarray(array[:, :3]).save(colours / "b.png")
    with pytest.raises(UserError, match=r"b\.png has 3 × 2 pixels in colour where a\.png has 4 × 2 pixels in colour"):
        read_image_file(colours)
    (colours / "b.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"b\.png is not a readable PNG"):
        read_image_file(colours)


def test_what_holds_no_images_is_refused_in_a_sentence(tmp_path: Path):
    def refused(name: str, content: bytes, reason: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=reason):
            read_image_file(tmp_path / name)

    refused("text", b"no idx at all", "is no idx file of bytes")
    refused("floats", bytes([0, 0, 13, 3]) + bytes(12), "is no idx file of bytes")
    refused("labels", idx(np.zeros(3, np.uint8)), "labels, it seems")
    refused("short", idx(PIXELS)[:-1], "not as many bytes")
    refused("header", idx(PIXELS)[:9], "not as many bytes")
    refused("long", idx(PIXELS) + b"0", "not as many bytes")
    refused("none", idx(np.zeros((0, 3, 4), np.uint8)), "holds no image")
    refused("cut.gz", gzip.compress(idx(PIXELS))[:-9], "damaged or cut short")
    refused("bad.gz", b"nothing", "damaged or cut short")
    refused("bad.npz", b"nothing", r"not a readable \.npz")
    np.savez(tmp_path / "floats.npz", PIXELS / 255)
    with pytest.raises(UserError, match="holds float64 of shape"):
        read_image_file(tmp_path / "floats.npz")
    np.savez(tmp_path / "two.npz", a=PIXELS, b=PIXELS)
    with pytest.raises(UserError, match="holds a, b: call its array"):
        read_image_file(tmp_path / "two.npz")
    np.savez(tmp_path / "objects.npz", np.array([{}], dtype=object))
    with pytest.raises(UserError, match=r"not a readable \.npz"):
        read_image_file(tmp_path / "objects.npz")
    with pytest.raises(UserError, match="There is no file"):
        read_image_file(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no file that ends in \.png"):
        read_image_file(tmp_path / "empty")


def test_tokens_are_row_by_row_with_channels_innermost():
    pixels = torch.arange(12, dtype=torch.uint8).view(1, 2, 2, 3)
    images = Images(pixels)
    assert images.space == Space(256, 12)
    x = images.sequences()
    assert x.tokens.tolist() == [list(range(12))]
    assert x.tokens.dtype == torch.long
    assert x.lengths.tolist() == [12]


def test_batches_become_tokens_one_at_a_time():
    images = Images(torch.arange(10, dtype=torch.uint8).view(5, 1, 2, 1))
    source = Batches(data=images, batch_size=2, seed=3)
    assert len(source) == 3
    batches = list(source.at(0, 0))
    assert [len(batch.lengths) for batch in batches] == [2, 2, 1]
    assert sorted(row for batch in batches for row in batch.tokens.tolist()) == [[2 * i, 2 * i + 1] for i in range(5)]
    assert torch.equal(next(iter(source.at(0, 1))).tokens, batches[1].tokens)


def test_binarised_by_one_draw_with_the_intensity_as_its_probability():
    levels = torch.tensor([0, 51, 204, 255], dtype=torch.uint8)
    images = Images(levels.repeat(3000, 5, 1)[..., None])
    drawn = binarised(images, 0)
    assert drawn.levels == 2
    assert drawn.space == Space(2, 20)
    assert torch.equal(drawn.pixels, binarised(images, 0).pixels)
    assert not torch.equal(drawn.pixels, binarised(images, 1).pixels)
    shares = drawn.pixels.double().mean((0, 1)).squeeze(1)
    assert float(shares[0]) == 0
    assert float(shares[3]) == 1
    # 15,000 draws each: 5.5 σ, one false alarm in 25 million.
    assert float(shares[1]) == pytest.approx(0.2, abs=0.018)
    assert float(shares[2]) == pytest.approx(0.8, abs=0.018)
    with pytest.raises(UserError, match="Images of 2 levels cannot be binarised"):
        binarised(drawn, 0)


def test_mnist_is_what_it_should_be():
    if "EBAR_DATA" not in os.environ:
        pytest.skip("needs MNIST under EBAR_DATA")
    path = Path(os.environ["EBAR_DATA"]) / "mnist" / "t10k-images-idx3-ubyte.gz"
    if not path.exists():
        pytest.skip("needs MNIST under EBAR_DATA")
    images = read_image_file(path)
    assert images.pixels.shape == (10_000, 28, 28, 1)
    # The mean intensity of the test images that everybody normalises with: 0.1325.
    assert float(images.pixels.double().mean()) / 255 == pytest.approx(0.1325, abs=1e-4)
    assert float(binarised(images, 0).pixels.double().mean()) == pytest.approx(0.1325, abs=1e-3)
