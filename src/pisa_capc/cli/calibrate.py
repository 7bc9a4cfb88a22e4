"""Commands of the calibration: calibrate."""
