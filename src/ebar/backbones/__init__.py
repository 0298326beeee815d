"""Tokens → hidden vectors."""

from typing import Any

from ebar.backbones.convolution import Convolution
from ebar.backbones.local_xl import LocalXl
from ebar.backbones.lstm import Lstm
from ebar.backbones.pixelcnn import GatedPixelCnn, PixelCnn
from ebar.backbones.transformer import EncoderDecoder, Transformer
from ebar.tables import Table

BACKBONES: Table[Any] = Table(
    "backbone",
    {
        "lstm": Lstm,
        "transformer": Transformer,
        "encoder_decoder": EncoderDecoder,
        "local_xl": LocalXl,
        "convolution": Convolution,
        "pixelcnn": PixelCnn,
        "gated_pixelcnn": GatedPixelCnn,
    },
    given=("vocabulary", "source_vocabulary", "image_height", "image_width", "channels"),
)
