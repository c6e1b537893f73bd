"""Types of arrays, libraries loaded at first use, canonical text, files written whole, and the frame of pages."""
