"""Tokens → hidden vectors."""

from typing import Any

from ebar.backbones.awd_lstm import AwdLstm
from ebar.backbones.local_xl import Convolution, LocalXl
from ebar.backbones.lstm import Lstm
from ebar.backbones.pixelcnn import GatedPixelCnn, PixelCnn
from ebar.backbones.transformer import EncoderDecoder, Transformer
from ebar.backbones.transformer_xl import TransformerXl
from ebar.backbones.xlnet import XlNet
from ebar.tables import Table

BACKBONES: Table[Any] = Table(
    "backbone",
    {
        "lstm": Lstm,
        "awd_lstm": AwdLstm,
        "transformer": Transformer,
        "encoder_decoder": EncoderDecoder,
        "transformer_xl": TransformerXl,
        "local_xl": LocalXl,
        "xlnet": XlNet,
        "convolution": Convolution,
        "pixelcnn": PixelCnn,
        "gated_pixelcnn": GatedPixelCnn,
    },
    given=("vocabulary", "source_vocabulary", "image_height", "image_width", "channels"),
)
