"""The privacy ledger: charges, what they compose to, and the books in which they are kept."""
