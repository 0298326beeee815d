"""The fingerprint of the store, under its earlier name."""

from ebar.store.fingerprint import fingerprint as fingerprint
