"""The experiments: one module each, named as in `python -m rawflash.run experiment=<name>`. How to add one: experiments/README.md."""
