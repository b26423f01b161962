"""The admin port: what orchestrators and operators ask, before and while models are served."""
