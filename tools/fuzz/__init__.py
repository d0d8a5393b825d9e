"""Generated requests against the API, and bent files against the reader."""
