"""Images on their way to the vision tower: untrusted bytes in, patches out.

Pillow is imported where it is used: a server that is sent no image never loads it.
"""
