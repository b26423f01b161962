"""Which version answers a request: labels now, weights and shadows when releases need them."""
