"""The paper's experiments on labelled rows: `python -m lab evaluate`. The service never imports them."""
