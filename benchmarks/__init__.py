"""Where we stand: each module asks a question, and answers it beside those who are good at it.

    python -m benchmarks.NAME [--size small|full] [--json] [--runs N]

The numbers of one machine and day, and what they mean, are in BENCHMARKS.md.
"""
