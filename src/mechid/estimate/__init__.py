"""Which parameters explain the logs: experiments, fits and the ways to find them."""
