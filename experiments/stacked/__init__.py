"""Many small federations on digits at once: networks of one shape are stacked, so that one step trains all of them.

The rules that weigh teachers are the product's own. Training, the generator and the discriminators are written anew,
with other random numbers, and take a seventh of the time. It is for looking for what helps; `experiments.carry` runs
the product itself.
"""
