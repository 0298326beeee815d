"""Images with few labels: what the files of public sets hold, how they are shared out, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ebar.data.labelled_images import LabelledFile, LabelledImagesData, as_numbers, few_labels, read_labelled_images
from ebar.errors import UserError


def write_idx(path: Path, array: Any) -> Path:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(int(size).to_bytes(4, "big") for size in array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())
    return path


def images(count: int, *, size: int = 2, classes: int = 3) -> LabelledFile:
    """Each image has its own number in its pixels; classes take turns."""
    numbers = torch.arange(count, dtype=torch.uint8)
    return LabelledFile(numbers.view(-1, 1, 1, 1).expand(-1, 1, size, size), torch.arange(count) % classes)


def test_idx_images_find_the_labels_beside_them(tmp_path: Path) -> None:
    pixels = np.arange(12).reshape(3, 2, 2)
    path = write_idx(tmp_path / "train-images-idx3-ubyte", pixels)
    with pytest.raises(UserError, match="should hold the labels"):
        read_labelled_images(path)
    write_idx(tmp_path / "train-labels-idx1-ubyte", np.array([2, 0, 1]))
    found = read_labelled_images(path)
    assert found.images.shape == (3, 1, 2, 2)
    assert found.images[1, 0].tolist() == [[4, 5], [6, 7]]
    assert found.labels.tolist() == [2, 0, 1]
    other = write_idx(tmp_path / "others", np.array([1, 1]))
    with pytest.raises(UserError, match="3 images and 2 labels"):
        read_labelled_images(path, other)
    with pytest.raises(UserError, match="no idx file of labels"):
        read_labelled_images(path, write_idx(tmp_path / "images", pixels))
    with pytest.raises(UserError, match="Nothing says where"):
        read_labelled_images(tmp_path / "images")


def test_a_binary_file_of_cifar_has_a_label_and_three_planes(tmp_path: Path) -> None:
    planes = np.concatenate([np.full(1024, plane, np.uint8) for plane in (10, 20, 30)])
    (tmp_path / "data.bin").write_bytes(b"".join(bytes([label]) + planes.tobytes() for label in (7, 3)))
    found = read_labelled_images(tmp_path / "data.bin")
    assert found.labels.tolist() == [7, 3]
    assert found.images.shape == (2, 3, 32, 32)
    assert found.images[1, :, 5, 6].tolist() == [10, 20, 30]
    (tmp_path / "cut.bin").write_bytes(b"abc")
    with pytest.raises(UserError, match="no binary file of CIFAR-10"):
        read_labelled_images(tmp_path / "cut.bin")


def test_a_mat_file_of_svhn_calls_the_digit_0_ten(tmp_path: Path) -> None:
    from scipy.io import savemat

    pixels = np.zeros((4, 5, 3, 2), np.uint8)  # height, width, channels, images
    pixels[1, 2, 0, 1] = 9
    savemat(tmp_path / "svhn.mat", {"X": pixels, "y": np.array([[10], [1]])})
    found = read_labelled_images(tmp_path / "svhn.mat")
    assert found.labels.tolist() == [0, 1]
    assert found.images.shape == (2, 3, 4, 5)
    assert found.images[1, 0, 1, 2] == 9
    assert int(found.images.sum()) == 9
    (tmp_path / "other.mat").write_bytes(b"no such thing")
    with pytest.raises(UserError, match="file of SVHN"):
        read_labelled_images(tmp_path / "other.mat")


def test_an_archive_must_have_labels_that_are_integers(tmp_path: Path) -> None:
    pixels = np.zeros((2, 3, 3), np.uint8)
    np.savez(tmp_path / "none.npz", images=pixels)
    with pytest.raises(UserError, match="call its array of labels 'labels'"):
        read_labelled_images(tmp_path / "none.npz")
    np.savez(tmp_path / "real.npz", images=pixels, labels=np.array([0.5, 1.0]))
    with pytest.raises(UserError, match="one integer an image"):
        read_labelled_images(tmp_path / "real.npz")
    np.savez(tmp_path / "good.npz", images=pixels, labels=np.array([1, 0], np.uint8))
    assert read_labelled_images(tmp_path / "good.npz").labels.tolist() == [1, 0]


def of(x: Tensor) -> set[int]:
    """The numbers of the images."""
    return set(x[:, 0, 0, 0].tolist())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_parts_are_disjoint_balanced_and_decided_by_the_seed(seed: int) -> None:
    train, test = images(60), images(9)
    found = few_labels(train, test, labels=6, validation=20, seed=seed)
    assert found.labels.bincount().tolist() == [2, 2, 2]
    assert [len(found.unlabelled), len(found.validation), len(found.test)] == [34, 20, 9]
    assert of(found.labelled) | of(found.unlabelled) | of(found.validation) == set(range(60))
    assert torch.equal(found.labels, torch.tensor([number % 3 for number in found.labelled[:, 0, 0, 0].tolist()]))
    again = few_labels(train, test, labels=6, validation=20, seed=seed)
    assert torch.equal(again.labelled, found.labelled)
    assert of(few_labels(train, test, labels=6, validation=20, seed=seed + 1).labelled) != of(found.labelled)
    assert len(few_labels(train, test, labels=6, validation=20, seed=seed, limit=5).unlabelled) == 5
    kept = few_labels(train, test, labels=6, validation=20, seed=seed, keep_labelled=True)
    assert of(kept.labelled) < of(kept.unlabelled)
    assert of(found.labelled).isdisjoint(of(found.unlabelled))


def test_bytes_become_numbers_from_0_to_1_and_points_stay() -> None:
    assert as_numbers(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0.0, 0.2, 1.0])
    points = torch.tensor([[-3.0, 7.0]])
    assert as_numbers(points) is points


@pytest.mark.parametrize(
    ("train", "test", "options", "said"),
    [
        (images(30), images(9, size=3), {}, r"test images are of 1 × 3 × 3 .* training images of 1 × 2 × 2"),
        (images(30), images(9), {"labels": 7}, "multiple of 3"),
        (images(30), images(9), {"labels": 33}, "class 0 has .* choose 11 labelled ones"),
        (images(30), images(9), {"labels": 8, "classes": 4}, "class 3 has 0 training examples"),
        (images(30), images(9), {"validation": 30}, "hold out fewer"),
        (images(9), images(9), {"labels": 6, "validation": 3}, "class|without a label"),
    ],
)
def test_what_cannot_be_shared_out_is_refused_in_one_sentence(
    train: LabelledFile, test: LabelledFile, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said) as error:
        few_labels(train, test, **{"labels": 6, "validation": 5, "seed": 0, **options})
    assert str(error.value).count(". ") == 0


def test_the_options_read_files_and_are_remembered(tmp_path: Path) -> None:
    for name, count in (("train", 30), ("test", 6)):
        one = images(count)
        np.savez(tmp_path / f"{name}.npz", images=one.images[:, 0].numpy(), labels=one.labels.numpy())
    options = LabelledImagesData(train=tmp_path / "train.npz", test=tmp_path / "test.npz", validation_size=8)
    found = options.read(labels=3, seed=4)
    assert found.source is options
    assert found.shape == (1, 2, 2)
    assert found.part("test")[1].tolist() == [0, 1, 2, 0, 1, 2]
    with pytest.raises(UserError, match="validation, test"):
        found.part("train")
