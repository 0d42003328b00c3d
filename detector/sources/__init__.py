"""Where frames come from: this machine's driver, recordings, exporters, the simulator.

Whatever a source reads, it yields Frames in the catalogue's units. A recording format is one module with a `FORMAT`
(see `format.py`), listed in `recording.py`.
"""
