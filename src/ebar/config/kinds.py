"""Which command a kept configuration is of, told by the names of its options.

The names stand here once more, so that a folder of runs can be listed without importing what the dataclasses need: a
test holds both to be the same.
"""

from collections.abc import Iterable

COMPUTED = "seed device precision"
MODEL = f"{COMPUTED} data backbone head"
OPTIONS = {
    "train": f"{MODEL} objective optimiser schedule training",
    "gam": f"{MODEL} features ft base matching regime rounds fresh distillation sampler student student_backbone "
    "continuation refinement maximal_length checks exact",
    "residual": f"{COMPUTED} base data energy negatives training evaluation",
    "control": "model features length ends draws surrogate_draws rows seed device prompt reads_prompt checks rounds "
    "round_draws precision trust_remote_code",
    "finetune": f"{MODEL} pretrained also mixing dropout frozen layer_decay monitor optimiser schedule training",
    "classify": f"{COMPUTED} labels data classifier generator encoder density terms optimiser generator_optimiser "
    "schedule training",
    "game": f"{COMPUTED} data generator discriminator costs entropy control halt smoothness optimiser schedule "
    "training",
    "control tune": "method steps tolerance draws learning_rate schedule warmup clip lora_rank proposal replace own "
    "divergence accumulate evaluate_every evaluation_draws final_draws checkpoint_every seed",
}


def kind_of_run(names: Iterable[str]) -> str | None:
    """The command whose configurations have options of these names; None where there is none."""
    given = set(names)
    return next((kind for kind, options in OPTIONS.items() if given and given <= set(options.split())), None)
