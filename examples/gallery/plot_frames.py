"""
A frame
=======

Words.
"""
import pisa_capc
pisa_capc.UCAPC()
