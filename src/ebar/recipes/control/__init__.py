"""Control of pretrained language models: GAM's own successors on real text."""
