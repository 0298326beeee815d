"""Moved to `statistics`."""

from ebar.recipes.statistics import with_items as with_items
