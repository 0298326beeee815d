"""Tokens → hidden vectors."""

from ebar.backbones.encoder_decoder import EncoderDecoder
from ebar.backbones.gated_pixelcnn import GatedPixelCnn
from ebar.backbones.lstm import Lstm
from ebar.backbones.pixelcnn import PixelCnn
from ebar.backbones.transformer import Transformer

BACKBONES = {
    "lstm": Lstm,
    "transformer": Transformer,
    "encoder_decoder": EncoderDecoder,
    "pixelcnn": PixelCnn,
    "gated_pixelcnn": GatedPixelCnn,
}
