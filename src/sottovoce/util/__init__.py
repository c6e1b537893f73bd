"""Array types, lazy imports, canonical JSON, files, and HTML pages."""
