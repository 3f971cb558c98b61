"""Linear models: any loss, explicit or implicit updates, certified convergence."""
