"""Extensions of an IPython kernel: variables for a run, charts and tables as data."""
