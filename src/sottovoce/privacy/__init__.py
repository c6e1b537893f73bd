"""The privacy half: what happened (events), what it costs (accountants), where noise comes from."""
