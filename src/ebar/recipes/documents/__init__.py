"""Every table and figure of the documents that ebar implements, one line each: what it says, and which recipe asks."""

from ebar.recipes.documents.beyond import BEYOND
from ebar.recipes.documents.earm import EARM, FORCING
from ebar.recipes.documents.entry import Document, Entry
from ebar.recipes.documents.gam import GAM
from ebar.recipes.documents.residual import RESIDUAL
from ebar.recipes.documents.thesis import THESIS
from ebar.recipes.documents.thesis_appendices import APPENDICES

__all__ = ["DOCUMENTS", "Document", "Entry"]
DOCUMENTS = (GAM, FORCING, EARM, RESIDUAL, THESIS, APPENDICES, BEYOND)
