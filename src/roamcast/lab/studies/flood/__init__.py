"""Flood watch, the application of the overlay work's testbed (section 4.3): real rain (`rain.py`), real
terrain, and the runoff model that a consumer's modulator is (`runoff.py`). `examples/flood/` plays it."""
