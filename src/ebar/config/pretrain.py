"""`ebar pretrain`: the text, the network, how it is trained.

Pretrain an XLNet on a text of your own: tokens are predicted in an order drawn at random. Run it again to go on where
it was stopped. It is `ebar train` with other defaults, and its folders are opened alike.

Example:
    ebar pretrain --name novels --data.train novels.txt --data.vocabulary 8000 --backbone.layers 4
    ebar pretrain --name bert --data.train novels.txt --data.predict denoising --objective.next_sentence true
"""

from dataclasses import asdict

from ebar.config.reader import Chosen, Manual
from ebar.journeys.pretrain import SCHEDULE, TRAINING

MANUAL = Manual.of(
    __doc__,
    defaults={
        "data": Chosen(kind="pretraining"),
        "backbone": Chosen(kind="xlnet"),
        "head.tied": True,
        "objective": Chosen(kind="pretraining"),
        "optimiser": Chosen(kind="adamw"),
        "schedule": Chosen(kind="linear"),
        "schedule.warmup": SCHEDULE.warmup,
        **{f"training.{name}": asdict(TRAINING)[name] for name in ("epochs", "batch_size", "clip")},
    },
)
