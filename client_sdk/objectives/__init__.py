"""The formulas of local training, pure functions of tensors: one file per objective. `client_sdk.methods` uses them."""
