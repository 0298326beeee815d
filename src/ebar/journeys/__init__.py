"""Whole journeys, made of the layers above: from a configuration and data to models, figures and a report."""
