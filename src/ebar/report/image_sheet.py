"""Sheets of images as PNG: samples, completions beside what was given of them, images with some of them framed."""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from ebar.types import Sequences

Picture = UInt8[Tensor, "height width 3"]

PAPER = (255, 255, 255)
GIVEN = (60, 110, 200)  # of what is given: a tint and a frame of blue
FRAME = (220, 50, 47)  # around real images among generated ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How tokens make an image, row by row, channels innermost: one is grey, three are red, green and blue."""

    height: int
    width: int
    channels: int = 1
    levels: int = 256
    """Of intensity: 2 for black and white."""

    def pictures(self, x: Sequences) -> UInt8[Tensor, "images height width 3"]:
        """Whole sequences of tokens as colours."""
        if self.channels not in (1, 3):
            raise ValueError(f"one channel is grey and three are colours, {self.channels} are neither")
        pixels = x.tokens.reshape(-1, self.height, self.width, self.channels)
        bright = (pixels.double() * (255 / (self.levels - 1))).round().to(torch.uint8)
        return bright.expand(-1, -1, -1, 3).contiguous()


def sample_sheet(x: Sequences, shape: Shape, *, columns: int = 10, scale: int = 2) -> bytes:
    """Images side by side, as the bytes of a PNG file."""
    pictures = list(shape.pictures(x))
    return png(_grid([pictures[at : at + columns] for at in range(0, len(pictures), columns)], scale))


def completion_sheet(
    originals: Sequences, completions: Sequences, given: int, shape: Shape, *, scale: int = 2
) -> bytes:
    """A row for each original: itself, then its completions; the `given` first tokens are tinted blue.

    Completions are whole images that begin with the given tokens, context-major: equally many for each original.
    """
    if len(completions.lengths) % max(len(originals.lengths), 1):
        counts = f"{len(completions.lengths)} completions of {len(originals.lengths)} images"
        raise ValueError(f"{counts} are not equally many for each")
    each = len(completions.lengths) // len(originals.lengths)
    whole, drawn = shape.pictures(originals), shape.pictures(completions)
    known = torch.arange(shape.height * shape.width).view(shape.height, shape.width) < given // shape.channels
    rows = [
        [whole[row], *(_tinted(picture, known) for picture in drawn[row * each : (row + 1) * each])]
        for row in range(len(whole))
    ]
    return png(_grid(rows, scale))


def image_sheet(
    images: Float[Tensor, "images channels height width"], framed: Bool[Tensor, " images"] | None = None, *,
    columns: int = 10, scale: int = 2,
) -> bytes:  # fmt: skip
    """Images in [0, 1] side by side, some of them (the real ones, say) in a red frame, as the bytes of a PNG file."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"one channel is grey and three are colours, {images.shape[1]} are neither")
    bright = (images.detach().double().clamp(0, 1) * 255).round().to(torch.uint8)
    pictures = list(bright.movedim(1, -1).expand(-1, -1, -1, 3).repeat_interleave(scale, 1).repeat_interleave(scale, 2))
    for number, picture in enumerate(pictures):
        around = FRAME if framed is not None and bool(framed[number]) else PAPER
        edged = torch.tensor(around, dtype=torch.uint8).repeat(picture.shape[0] + 2, picture.shape[1] + 2, 1)
        edged[1:-1, 1:-1] = picture
        pictures[number] = edged
    return png(_grid([pictures[at : at + columns] for at in range(0, len(pictures), columns)], 1))


def _tinted(picture: Picture, known: Tensor) -> Picture:
    tint = torch.tensor(GIVEN)
    mixed = (picture.double() * 0.65 + tint * 0.35).round().to(torch.uint8)
    return torch.where(known[:, :, None], mixed, picture)


def _grid(rows: Sequence[Sequence[Picture]], scale: int, gap: int = 2) -> UInt8[Tensor, "all_down all_across 3"]:
    """All pictures, `scale` times as large, with paper between them."""
    if not rows:
        raise ValueError("a sheet needs at least one image")
    height, width, _ = rows[0][0].shape
    down, across = height * scale + gap, width * scale + gap
    sheet = torch.tensor(PAPER, dtype=torch.uint8).repeat(len(rows) * down + gap, max(map(len, rows)) * across + gap, 1)
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            large = picture.repeat_interleave(scale, 0).repeat_interleave(scale, 1)
            top, left = gap + row * down, gap + column * across
            sheet[top : top + height * scale, left : left + width * scale] = large
    return sheet


def png(picture: Picture) -> bytes:
    """A PNG file (RFC 2083) of 8-bit colours: no date in it, so the same picture gives the same file."""
    height, width, _ = picture.shape
    # Every line begins with the number of its filter: 0, none.
    lines = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), picture.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.contiguous().numpy().tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write_sheets(sheets: Mapping[str, str], path: Path) -> None:
    """Sheets, each a PNG in base 64, below one another with their names, as one SVG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<?xml version="1.0" encoding="utf-8"?>\n{sheets_as_svg(sheets)}\n')


def sheets_as_svg(sheets: Mapping[str, str]) -> str:
    """Sheets, each a PNG in base 64, below one another with their names."""
    parts, top, widest = [], 0, 0
    for name, text in sheets.items():
        width, height = struct.unpack(">II", base64.b64decode(text)[16:24])
        parts.append(f'<text x="4" y="{top + 16}" font-family="sans-serif" font-size="13">{escape(name)}</text>')
        parts.append(
            f'<image x="0" y="{top + 22}" width="{width}" height="{height}" href="data:image/png;base64,{text}"/>'
        )
        top, widest = top + 30 + height, max(widest, width, 9 * len(name))
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{widest}" height="{top}">\n{body}\n</svg>'
