"""Tables and figures of Deng et al. 2020: a discriminator as part of the language model."""
