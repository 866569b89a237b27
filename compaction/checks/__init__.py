"""Checks: a table held against its data (`verify`), and made right again (`repair`)."""
