"""FedMA: clients' networks fused layer by layer, units that do the same thing averaged with one another.

Wang et al. 2020, "Federated Learning with Matched Averaging", Alg. 1; `matching` solves one layer, `networks` goes
through a chain of them (`contract.chains`), `files` does so on clients' files.
"""
