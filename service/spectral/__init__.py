"""Pure numpy: spectra, calibration maps, risk, fit, diagnostics. No I/O, no clock, no hidden randomness."""
