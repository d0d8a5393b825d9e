"""Networks as data, with torch: a document of a module, and a module of a document (`contract.networks`)."""
