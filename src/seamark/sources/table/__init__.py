"""An SQL table with a growing key as a stream; :class:`seamark.sources.TableSource`."""
