"""A playground in the browser: what an energy does to a language model's words, with intervals.

Computing is in functions of objects that know nothing of a page (`playground`, `tilting`, `residual`, `languages`);
`page` shows it with gradio, `server` decides who may ask.
"""
