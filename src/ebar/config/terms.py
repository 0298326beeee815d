"""Terms that name features, as options have them: KIND:ARGUMENT, or KIND:ARGUMENT=NUMBER."""

from typing import Annotated

from ebar.build.terms import absolute

# Files by their whole path, so that a run can be continued from any folder.
Term = Annotated[str, lambda _, term: absolute(term)]
