"""The papers' experiments, each a short module that prints its figures beside ours."""
