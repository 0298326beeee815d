"""Tests of the journey of a GAM."""
