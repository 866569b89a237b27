"""Engines: where tasks over Arrow batches run. The protocol is here, and the engine of one process;
that on Spark is in `spark`.
"""
