"""Every table and figure of the documents that ebar implements, one line each: what it says, and which recipe asks."""

from ebar.recipes.documents.entry import Document, Entry
from ebar.recipes.documents.papers import BEYOND, EARM, FORCING, GAM, RESIDUAL
from ebar.recipes.documents.thesis import APPENDICES, THESIS

__all__ = ["DOCUMENTS", "Document", "Entry"]
DOCUMENTS = (GAM, FORCING, EARM, RESIDUAL, THESIS, APPENDICES, BEYOND)
