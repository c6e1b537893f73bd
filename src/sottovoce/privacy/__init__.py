"""The privacy half: what happened (events), what it costs (accountants), where it is written (ledger)."""
