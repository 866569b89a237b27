"""Reading: the rows of file slices, whole, as a stream, or those of a few keys."""
