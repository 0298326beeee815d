"""Document 000: global autoregressive models."""
