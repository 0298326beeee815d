"""Tables and figures of document 002: a discriminator as part of the language model."""
