"""One module per benchmark case; `benchmarks.case.Case` says what a case holds."""
