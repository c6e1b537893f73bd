"""Privacy: events, their prices, accountants, calibration, sources of noise, and statements."""
