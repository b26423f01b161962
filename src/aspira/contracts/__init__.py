"""The words all floors speak: values and protocols, with no I/O, no threads and no framework."""
